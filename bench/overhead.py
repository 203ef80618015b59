"""What the sentinel costs a training: step times with and without it, in alternating runs.

    python bench/overhead.py --pairs 8 --steps 300

One Ray node, which has all that is ours: agent, collectors, coordinator. Each pair is one run of a
real two-rank gloo training that nobody watches, and one that is attached and watched; which comes
first alternates. A step computes, waits as for an accelerator (``--device-ms``; 0 makes it bound by
the CPU, where every cycle of ours is one of the training's on a machine with as many cores as
ranks), and reduces. Means are compared, for what runs once a second does not move a median. The
ratio is given with its 95 % bootstrap interval over the pairs, beside it the same for pairs in
which neither is watched (the noise of this machine), and the CPU time of all that is ours, as a
share of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import psutil

from ray_sentinel.actors.deployment import deploy
from ray_sentinel.config import Config
from ray_sentinel.demo.cluster import start_machines

TRAIN = """
import json, os, sys, time
import torch, torch.distributed as dist
if sys.argv[1] == "watched":
    import ray_sentinel
    sentinel = ray_sentinel.attach(job="overhead")
    step_done = sentinel.step
else:
    step_done = lambda: None
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
wait = float(sys.argv[3]) / 1e3
a = torch.randn(384, 384)
for _ in range(50):
    dist.all_reduce(a @ a)
times = []
for _ in range(int(sys.argv[2])):
    begun = time.perf_counter()
    b = a
    for _ in range(4):
        b = b @ a
    if wait:
        time.sleep(wait)
    dist.all_reduce(b)
    step_done()
    times.append(time.perf_counter() - begun)
dist.barrier()
if os.environ["RANK"] == "0":
    print(json.dumps(times), flush=True)
dist.destroy_process_group()
"""


def train(kind: str, args: argparse.Namespace, address: str) -> float:
    """Mean step time of one run, in seconds."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, kind, str(args.steps), str(args.device_ms)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
                 "RAY_ADDRESS": address, "RAY_SENTINEL_AUTOSTEP": "0"},
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    out, _ = ranks[0].communicate(timeout=600)
    ranks[1].communicate(timeout=60)
    return statistics.fmean(json.loads(out.splitlines()[-1]))


def ours() -> float:
    """CPU seconds that our processes below this one have used so far."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            line = " ".join(process.cmdline())
            if "ray_sentinel" in line or "ray::Agent" in line or "ray::Coordinator" in line:
                times = process.cpu_times()
                total += times.user + times.system
        except psutil.Error:
            continue
    return total


def watched_run(ray: Any, args: argparse.Namespace, address: str) -> tuple[float, float]:
    """Mean step time, and our CPU seconds per second of the run."""
    deploy.ensure(ray, Config(job="overhead", log_dir=tempfile.mkdtemp(prefix="bench-")))
    try:
        time.sleep(5)
        before, begun = ours(), time.monotonic()
        mean = train("watched", args, address)
        return mean, (ours() - before) / (time.monotonic() - begun)
    finally:
        deploy.down(ray)


def interval(ratios: list[float]) -> str:
    """The median ratio and its 95 % bootstrap interval, as differences from 1 in percent."""
    dice = random.Random(0)
    medians = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(4000))
    middle, low, high = (
        100 * (value - 1) for value in (statistics.median(ratios), medians[100], medians[3900])
    )
    return f"{middle:+.2f} % (95 % interval {low:+.2f} to {high:+.2f} %)"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device-ms", type=float, default=40.0)
    args = parser.parse_args()
    ratios, noise, shares = [], [], []
    with start_machines(()) as machines:
        ray = machines.ray
        address = ray.get_runtime_context().gcs_address
        for pair in range(args.pairs):
            plain = train("plain", args, address) if pair % 2 else None
            watched, share = watched_run(ray, args, address)
            plain = plain or train("plain", args, address)
            again = train("plain", args, address)
            ratios.append(watched / plain)
            noise.append(again / plain if pair % 2 else plain / again)
            shares.append(share)
            print(
                f"plain {1e3 * plain:.3f} and {1e3 * again:.3f} ms, watched {1e3 * watched:.3f} ms",
                flush=True,
            )
    print(f"watched against plain: {interval(ratios)}")
    print(f"plain against plain:   {interval(noise)}")
    print(f"CPU of ours on the node: {100 * statistics.median(shares):.2f} % of a core")


if __name__ == "__main__":
    main()

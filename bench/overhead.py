"""What the sentinel costs a training: step times with and without it, in alternating runs.

    python bench/overhead.py --pairs 8 --steps 400

Each pair is one run of a real two-rank gloo training that nobody watches, and one that is attached,
on a watched cluster; which comes first alternates. The ratio of the medians is given with its
95 % bootstrap interval over the pairs, and beside it the CPU time of all that is ours, per node, as
a share of one core.
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

from ray_sentinel.actors import deployment
from ray_sentinel.config import Config
from ray_sentinel.demo.cluster import three_nodes

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
a = torch.randn(384, 384)
for _ in range(50):
    dist.all_reduce(a @ a)
times = []
for _ in range(int(sys.argv[2])):
    begun = time.perf_counter()
    b = a
    for _ in range(4):
        b = b @ a
    dist.all_reduce(b)
    step_done()
    times.append(time.perf_counter() - begun)
if os.environ["RANK"] == "0":
    print(json.dumps(times))
"""


def train(kind: str, steps: int, address: str) -> float:
    """Median step time of one run, in seconds."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, kind, str(steps)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
                 "RAY_ADDRESS": address, "RAY_SENTINEL_AUTOSTEP": "0"},
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]  # fmt: skip
    out, _ = ranks[0].communicate(timeout=300)
    ranks[1].communicate(timeout=60)
    return statistics.median(json.loads(out.splitlines()[-1]))


def ours() -> float:
    """CPU seconds that our processes have used so far."""
    total = 0.0
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            if "ray_sentinel" in line or "ray::Agent" in line or "ray::Coordinator" in line:
                times = process.cpu_times()
                total += times.user + times.system
        except psutil.Error:
            continue
    return total


def watched_run(ray: Any, steps: int, address: str) -> tuple[float, float]:
    """Median step time, and our CPU seconds per second of the run."""
    deployment.ensure(ray, Config(job="overhead", log_dir=tempfile.mkdtemp(prefix="bench-")))
    try:
        time.sleep(5)
        before, begun = ours(), time.monotonic()
        median = train("watched", steps, address)
        return median, (ours() - before) / (time.monotonic() - begun)
    finally:
        deployment.down(ray)


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the median ratio."""
    dice = random.Random(0)
    medians = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(4000))
    return medians[100], medians[3900]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    ratios, shares = [], []
    with three_nodes() as (ray, addresses):
        address = ray.get_runtime_context().gcs_address
        for pair in range(args.pairs):
            plain = train("plain", args.steps, address) if pair % 2 else None
            watched, share = watched_run(ray, args.steps, address)
            plain = plain or train("plain", args.steps, address)
            ratios.append(watched / plain)
            shares.append(share / len(addresses))
            print(f"plain {1e3 * plain:.3f} ms, watched {1e3 * watched:.3f} ms", flush=True)
    low, high = interval(ratios)
    print(
        f"step time watched / plain: median {statistics.median(ratios):.4f}, 95 % interval "
        f"{low:.4f} to {high:.4f}; CPU of ours per node {100 * statistics.median(shares):.2f} % "
        "of a core"
    )


if __name__ == "__main__":
    main()

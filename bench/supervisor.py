"""What supervising costs, and how fast it is.

    python bench/supervisor.py [--seconds S] [--rounds N] [--doctor] [--json]

Figures: the supervisor and its keeper take <= 0.5 % of a core; from a crash to the new process
started <= 5 s beside the backoff; with --doctor, which starts a Ray cluster: all checks on three
nodes <= 15 s.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from processes import own_cpu_seconds

sys.path.insert(0, str(Path(__file__).parents[1]))

TRAIN = (
    "import time\nfor n in range(10**9): print(f'step {n} loss 0.5', flush=True); time.sleep(0.1)"
)
CRASH = "import os, time; print(time.time(), flush=True); time.sleep(0.5); os.kill(os.getpid(), 9)"


def command(folder: Path, *options: str) -> list[str]:
    """``ray-sentinel run`` up to its command."""
    start = [sys.executable, "-m", "ray_sentinel.cli.main", "run", "--job", "bench", "--quiet"]
    return [*start, "--checkpoint-dir", str(folder), *options, "--"]


def environ(folder: Path) -> dict[str, str]:
    """The environment, with everything of ours below the folder."""
    return {**os.environ, "RAY_SENTINEL_LOG_DIR": str(folder / "log")}


def cost(seconds: float) -> dict[str, float]:
    """Shares of a core while a training prints ten steps a second and nothing happens."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = subprocess.Popen(
            [*command(folder, "--grace", "1"), sys.executable, "-c", TRAIN],
            env=environ(folder),
            stderr=subprocess.DEVNULL,
        )
        state = folder / "log/run/bench/attempt-0000/state.json"
        until = time.monotonic() + 60
        while not state.exists() or not json.loads(state.read_text()).get("child"):
            if time.monotonic() > until:
                raise SystemExit("the command did not start")
            time.sleep(0.1)
        keeper = json.loads(state.read_text())["keeper"]
        time.sleep(3.0)  # its start is not what is measured
        begun = time.monotonic()
        before = {pid: own_cpu_seconds(pid) for pid in (started.pid, keeper)}
        time.sleep(seconds)
        after = {pid: own_cpu_seconds(pid) for pid in before}
        passed = time.monotonic() - begun
        started.send_signal(signal.SIGTERM)
        started.wait(timeout=60)
    shares = {pid: (after[pid] - before[pid]) / passed for pid in before}
    return {"supervisor": shares[started.pid], "keeper": shares[keeper]}


def restarts(rounds: int) -> list[float]:
    """Seconds from each crash to the first line of the next process, backoff left out."""
    delay = 0.5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = ("--retry-delay", str(delay), "--max-delay", str(delay))
        subprocess.run(
            [*command(folder, *options, "--max-retries", str(rounds)), sys.executable, "-c", CRASH],
            env=environ(folder),
            stderr=subprocess.DEVNULL,
            timeout=60 + 20 * rounds,
            check=False,
        )
        attempts = sorted((folder / "log/run/bench").glob("attempt-*"))
        begun = [float((path / "output.log").read_text().split()[0]) for path in attempts]
        ended = [json.loads((path / "state.json").read_text())["ended_at"] for path in attempts]
    # The delay is drawn within 20 %; the cap makes its upper end exact, the lower is 0.8 of it.
    return [start - end - 0.8 * delay for start, end in zip(begun[1:], ended, strict=False)]


def doctor() -> list[float]:
    """Seconds for all checks on three nodes of one machine, three times."""
    from tests.support.ray_cluster import RayCluster

    cluster = RayCluster()
    try:
        took = []
        for _ in range(3):
            begun = time.perf_counter()
            ended = cluster.run("doctor", "--nodes", "3", "--port", "29500", "--json")
            took.append(time.perf_counter() - begun)
            if len(json.loads(ended.stdout)["nodes"]) != 3:
                raise SystemExit(ended.stdout + ended.stderr)
        return took
    finally:
        cluster.stop()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--doctor", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    shares, delays = cost(args.seconds), restarts(args.rounds)
    result: dict[str, Any] = {
        "cpu_share": shares,
        "restart_seconds": {"median": statistics.median(delays), "max": max(delays)},
    }
    if args.doctor:
        took = doctor()
        result["doctor_seconds"] = {"median": statistics.median(took), "max": max(took)}
    if args.json:
        print(json.dumps(result, indent=2))
        return
    for name, share in shares.items():
        print(f"{name}: {share:.2%} of a core")
    print(
        f"crash to new process: median {statistics.median(delays):.2f} s, max {max(delays):.2f} s"
    )
    if args.doctor:
        print(
            f"doctor on three nodes: median {statistics.median(took):.1f} s, max {max(took):.1f} s"
        )


if __name__ == "__main__":
    main()

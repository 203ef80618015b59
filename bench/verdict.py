"""How long it takes from a rank's trouble to its name, over many real trainings.

    python bench/verdict.py --runs 10 [--fault gil] [--no-attach] [--step-seconds 0.3]

One Ray cluster of three nodes; for each run a fresh gloo training of six ranks, the rank drawn. The
time counts from the moment the training script notes before its trouble to ``confirmed_at``.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.actors import deployment
from ray_sentinel.config import Config
from ray_sentinel.demo.cluster import three_nodes
from ray_sentinel.demo.job import Job, write_scripts
from ray_sentinel.demo.plan import EXPECTED, draw
from ray_sentinel.demo.story import judge
from ray_sentinel.model.incident import Incident

LIMITS = {"sigstop": 5.0, "sigkill": 5.0, "gil": 5.0, "sleep": 15.0, "fifo": 15.0}


def incidents(ray: Any, name: str) -> list[Incident]:
    raw = deployment.ask(ray, deployment.find(ray), "incidents", seconds=30)
    return [i for i in msgspec.msgpack.decode(raw, type=list[Incident]) if i.job == name]


def wait(look: Any, seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def one(ray: Any, addresses: list[str], fault: str, seed: int, attach: bool) -> tuple[float, str]:
    """Seconds to the verdict, and what is wrong with it."""
    plan = draw(fault, None, seed)
    with tempfile.TemporaryDirectory() as folder:
        write_scripts(Path(folder), plan, attach=attach)
        job = Job(ray, addresses, Path(folder))
        job.start()
        try:
            began = wait(job.began, 180)
            found = wait(lambda: incidents(ray, job.name), 60)
            if not began or not found:
                return float("inf"), "no verdict"
            return (found[0].confirmed_at or 0.0) - began, judge(plan, found)
        finally:
            job.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--fault", action="append", choices=sorted(EXPECTED))
    parser.add_argument("--no-attach", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    log_dir = tempfile.mkdtemp(prefix="bench-verdict-")
    print(f"seed {args.seed}, attached {not args.no_attach}, files in {log_dir}")
    with three_nodes() as (ray, addresses):
        deployment.ensure(ray, Config(job="bench", log_dir=log_dir))
        try:
            for fault in args.fault or sorted(EXPECTED):
                seconds, wrong = [], []
                for run in range(args.runs):
                    took, error = one(
                        ray, addresses, fault, args.seed + run, attach=not args.no_attach
                    )
                    seconds.append(took)
                    wrong += [error] if error else []
                print(
                    f"{fault:8} runs {len(seconds)} right {len(seconds) - len(wrong)} "
                    f"median {statistics.median(seconds):.1f} s worst {max(seconds):.1f} s "
                    f"(limit {LIMITS[fault]:.0f} s) {'; '.join(wrong)}",
                    flush=True,
                )
        finally:
            deployment.down(ray)


if __name__ == "__main__":
    main()

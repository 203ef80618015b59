"""How long it takes from a rank's trouble to its name, over many real trainings.

    python bench/verdict.py --runs 10 [--fault gil] [--no-attach]

One Ray cluster of three nodes; for each run a fresh gloo training, its layout and the rank drawn.
The time counts from the moment the training script notes before its trouble to ``confirmed_at``.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from pathlib import Path

from ray_sentinel.demo.catalogue import LIMITS
from ray_sentinel.demo.cluster import Machines
from ray_sentinel.demo.plan import SHOWN, draw
from ray_sentinel.demo.story import watched_machines
from ray_sentinel.demo.suite import trial


def one(machines: Machines, fault: str, seed: int, attach: bool) -> tuple[float, str]:
    """Seconds to the verdict, and what is wrong with it."""
    outcome = trial(draw(fault, None, seed, attach="attach" if attach else ""), machines)
    seconds = float("inf") if outcome.seconds is None else outcome.seconds
    return seconds, outcome.wrong or outcome.broken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--fault", action="append", choices=SHOWN)
    parser.add_argument("--no-attach", action="store_true")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="bench-verdict-")
    print(f"seed {args.seed}, attached {not args.no_attach}, files in {folder}")
    with watched_machines(Path(folder)) as machines:
        for fault in args.fault or SHOWN:
            seconds, wrong = [], []
            for run in range(args.runs):
                took, error = one(machines, fault, args.seed + run, attach=not args.no_attach)
                seconds.append(took)
                wrong += [error] if error else []
            limit = LIMITS[draw(fault, None, 0).expected.clock]
            print(
                f"{fault:8} runs {len(seconds)} right {len(seconds) - len(wrong)} "
                f"median {statistics.median(seconds):.1f} s worst {max(seconds):.1f} s "
                f"(limit {limit:.0f} s) {'; '.join(wrong)}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""The fault suite: many trainings on one cluster, one JSON line for each.

    python -m ray_sentinel.demo.suite --seed 7 --seconds 280 [--fault sigstop ...] [--out FILE]
    python -m ray_sentinel.demo.suite --family actors --seed 7 [--only rl-sync ...] [--out FILE]

Every fault comes once in each round, with its layout, ranks, step and names drawn by the seed. A
round that does not fit into ``--seconds`` is ended early; ``--skip`` goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

import msgspec

from ray_sentinel.demo.actor_suite import (
    ActorTrialResult,
    actor_plans,
    actor_result_of,
    actor_trial,
    needs_client,
    needs_dashboard,
)
from ray_sentinel.demo.catalogue import ALL, FAULTS, LIMITS
from ray_sentinel.demo.cluster import Machines
from ray_sentinel.demo.plan import MODES, TrialPlan, draw
from ray_sentinel.demo.stage import Stage
from ray_sentinel.demo.story import watched_machines
from ray_sentinel.demo.trial import TrialOutcome, play
from ray_sentinel.demo.trial_result import FaultResult, measured
from ray_sentinel.errors import SentinelError

Plan = TypeVar("Plan")
Outcome = TypeVar("Outcome")


class TrialResult(FaultResult, frozen=True, kw_only=True):
    """The result of a training."""

    world: int
    actors: bool = False
    recorder: bool
    expected: list[int]
    named: list[int]
    innocents: list[int]
    """Ranks that were named and are no culprits."""


def result_of(outcome: TrialOutcome) -> TrialResult:
    """The result of a trial."""
    plan, row = outcome.plan, outcome.plan.expected
    return TrialResult(
        **measured(outcome, row.clock, LIMITS.get(row.clock), row.kinds),
        fault=plan.fault,
        layout=plan.layout,
        world=plan.world,
        attach=plan.attach or "no",
        actors=plan.actors,
        recorder=plan.recorder,
        seed=plan.seed,
        expected=plan.ranks,
        named=outcome.named,
        exact=outcome.named == plan.ranks,
        innocents=sorted(set(outcome.named) - set(plan.ranks)),
    )


def plans(faults: Iterable[str], seed: int) -> Iterator[TrialPlan]:
    """Yields without end: each fault once a round, every round drawn again; attached two times of
    three, and each fault once in every way of attaching in any three rounds."""
    names = list(faults)
    for number in count():
        turn, place = divmod(number, len(names))
        mode = MODES[(seed + place + turn) % len(MODES)]
        yield draw(names[place], seed=seed + number, attach=mode)


def trial(plan: TrialPlan, machines: Machines) -> TrialOutcome:
    """Play one trial in a folder of its own. The outcome says why it failed; nothing is raised."""
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        try:
            return play(plan, machines, Stage(machines.ray), Path(folder))
        except (SentinelError, OSError) as error:
            return TrialOutcome(plan=plan, broken=str(error))


def sweep(
    drawn: Iterable[Plan], played: Callable[[Plan], Outcome], *, parallel: int, seconds: float
) -> Iterator[Outcome]:
    """Play plan after plan, some at a time, until ``seconds`` have gone; in their order."""
    end = time.monotonic() + seconds

    def guarded(plan: Plan) -> Outcome | None:
        return played(plan) if time.monotonic() < end else None

    with ThreadPoolExecutor(parallel) as pool:
        pending: list[Future[Outcome | None]] = []
        for plan in drawn:
            pending.append(pool.submit(guarded, plan))
            if len(pending) >= parallel:
                outcome = pending.pop(0).result()
                if outcome is None:
                    break
                yield outcome
        for future in pending:
            if (outcome := future.result()) is not None:
                yield outcome


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 where every verdict was right, 1 where one was not."""
    parser = argparse.ArgumentParser(prog="ray_sentinel.demo.suite", description=__doc__)
    parser.add_argument("--fault", action="append", choices=sorted(ALL), metavar="NAME",
                        help="only this one; may be given more than once")  # fmt: skip
    parser.add_argument("--no-healthy", action="store_true", help="faults only")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--skip", type=int, default=0, help="trials of this seed already played")
    parser.add_argument(
        "--count",
        type=int,
        default=len(ALL),
        help="trials of this seed in all, those to skip included",
    )
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin none after these")
    parser.add_argument("--parallel", type=int, default=1, help="trainings at a time")
    parser.add_argument("--out", type=Path, help="append the lines here as well")
    parser.add_argument("--log-dir", type=Path, help="where the sentinel's files are kept")
    parser.add_argument("--family", choices=("ranks", "actors"), default="ranks",
                        help="trainings of ranks, or jobs of Ray actors")  # fmt: skip
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="of the actors, only this layout or fault")  # fmt: skip
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fault-suite-") as temporary:
        folder = args.log_dir or Path(temporary)
        played = _actors(args, folder) if args.family == "actors" else _ranks(args, folder)
        right = True
        for is_right, result in played:
            right &= is_right
            written = msgspec.json.encode(result).decode()
            sys.stdout.write(written + "\n")
            sys.stdout.flush()
            if args.out is not None:
                with args.out.open("a") as file:
                    file.write(written + "\n")
    return 0 if right else 1


def _ranks(args: argparse.Namespace, folder: Path) -> Iterator[tuple[bool, TrialResult]]:
    faults = args.fault or (list(FAULTS) if args.no_healthy else list(ALL))
    drawn = islice(plans(faults, args.seed), args.skip, args.count)
    with watched_machines(folder) as machines:
        played = partial(trial, machines=machines)
        for outcome in sweep(drawn, played, parallel=args.parallel, seconds=args.seconds):
            yield outcome.right, result_of(outcome)


def _actors(args: argparse.Namespace, folder: Path) -> Iterator[tuple[bool, ActorTrialResult]]:
    drawn = list(islice(actor_plans(args.seed, args.only), args.skip, args.count))
    client, dashboard = needs_client(drawn), needs_dashboard(drawn)
    with watched_machines(folder, client=client, dashboard=dashboard) as machines:
        played = partial(actor_trial, machines=machines)
        for outcome in sweep(drawn, played, parallel=1, seconds=args.seconds):
            yield outcome.right, actor_result_of(outcome)


if __name__ == "__main__":
    sys.exit(main())

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
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.demo.actor_suite import (
    ActorTrialResult,
    actor_plans,
    actor_result_of,
    actor_sweep,
    needs_client,
    needs_dashboard,
)
from ray_sentinel.demo.catalogue import ALL, FAULTS, LIMITS
from ray_sentinel.demo.cluster import Machines
from ray_sentinel.demo.plan import MODES, TrialPlan, draw
from ray_sentinel.demo.stage import Stage
from ray_sentinel.demo.story import watched_machines
from ray_sentinel.demo.trial import TrialOutcome, play
from ray_sentinel.errors import SentinelError
from ray_sentinel.waitgraph.confidence import put_on_culprit


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """One trial's result, as it is written."""

    fault: str
    layout: str
    world: int
    attach: str
    actors: bool = False
    recorder: bool
    seed: int
    job: str
    clock: str
    expected: list[int]
    expected_kinds: list[str]
    named: list[int]
    kind: str
    """The kind of fault that the first incident states; empty if there is none."""
    seconds: float | None
    """Seconds from the beginning of the trouble to the first confirmed incident."""
    in_time: bool
    exact: bool
    """Whether the culprits, and nobody else, were named."""
    right_kind: bool
    innocents: list[int]
    """Ranks that were named and are no culprits."""
    false_alarms: int
    wrong: str
    broken: str
    summary: str = ""
    confidence: float = 0.0
    """The confidence (0..1) that the first incident states."""
    witnesses: dict[str, float] = {}
    """What each witness puts on the culprit of whom it is least sure."""


def result_of(outcome: TrialOutcome) -> TrialResult:
    """The result of a trial. Early incidents and those of healthy jobs are false alarms."""
    plan, row = outcome.plan, outcome.plan.expected
    healthy = row.clock == "healthy"
    early = [i for i in outcome.incidents if (i.confirmed_at or 0.0) < (outcome.began or 0.0)]
    kind = outcome.incident.kind if outcome.incident else ""
    limit = LIMITS.get(row.clock)
    verdict = outcome.incident.verdict if outcome.incident else None
    return TrialResult(
        fault=plan.fault,
        layout=plan.layout,
        world=plan.world,
        attach=plan.attach or "no",
        actors=plan.actors,
        recorder=plan.recorder,
        seed=plan.seed,
        job=outcome.job,
        clock=row.clock,
        expected=plan.ranks,
        expected_kinds=list(row.kinds),
        named=outcome.named,
        kind=kind,
        seconds=outcome.seconds,
        in_time=limit is None or (outcome.seconds is not None and outcome.seconds <= limit),
        exact=outcome.named == plan.ranks,
        right_kind=not kind if healthy else kind in row.kinds,
        innocents=sorted(set(outcome.named) - set(plan.ranks)),
        false_alarms=len(outcome.incidents) if healthy else len(early),
        wrong=outcome.wrong,
        broken=outcome.broken,
        summary=outcome.incident.summary if outcome.incident else "",
        confidence=verdict.confidence if verdict else 0.0,
        witnesses=dict(put_on_culprit(verdict)) if verdict else {},
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
    drawn: Iterable[TrialPlan], machines: Machines, *, parallel: int, seconds: float
) -> Iterator[TrialOutcome]:
    """Play plan after plan, some at a time, until ``seconds`` have gone; in their order."""
    end = time.monotonic() + seconds

    def guarded(plan: TrialPlan) -> TrialOutcome | None:
        return trial(plan, machines) if time.monotonic() < end else None

    with ThreadPoolExecutor(parallel) as pool:
        pending: list[Any] = []
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
    parser.add_argument("--count", type=int, default=len(ALL), help="trials")
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
        told = sweep(drawn, machines, parallel=args.parallel, seconds=args.seconds)
        for outcome in told:
            yield outcome.right, result_of(outcome)


def _actors(args: argparse.Namespace, folder: Path) -> Iterator[tuple[bool, ActorTrialResult]]:
    drawn = list(islice(actor_plans(args.seed, args.only), args.skip, args.count))
    client, dashboard = needs_client(drawn), needs_dashboard(drawn)
    with watched_machines(folder, client=client, dashboard=dashboard) as machines:
        for outcome in actor_sweep(drawn, machines, seconds=args.seconds):
            yield outcome.right, actor_result_of(outcome)


if __name__ == "__main__":
    sys.exit(main())

"""The second family of the fault suite: jobs of Ray actors. Played by ``suite --family actors``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.demo.actor_catalogue import ACTOR_ALL
from ray_sentinel.demo.actor_plan import ActorTrialPlan, draw_actors
from ray_sentinel.demo.actor_trial import ActorTrial, ActorTrialOutcome
from ray_sentinel.demo.cluster import Machines
from ray_sentinel.demo.plan import MODES
from ray_sentinel.demo.stage import Stage
from ray_sentinel.demo.trial_result import FaultResult, measured
from ray_sentinel.errors import SentinelError, UsageError


class ActorTrialResult(FaultResult, frozen=True, kw_only=True, tag="actors", tag_field="family"):
    """The result of a job of actors."""

    culprit: str
    place: str
    limit: float | None
    expected: list[list[str]]
    """The sets of members that are each a right answer."""
    named: list[str]
    innocents: list[str]
    well: str = ""
    chain: list[dict[str, Any]] = msgspec.field(default_factory=list)


def actor_result_of(outcome: ActorTrialOutcome) -> ActorTrialResult:
    """The result of a trial."""
    plan, first = outcome.plan, outcome.incident
    verdict = first.verdict if first else None
    fields = measured(outcome, plan.clock, plan.limit, plan.kinds)
    if plan.clock == "slow" and not first:
        fields["right_kind"] = True  # silence is right, too
    return ActorTrialResult(
        **fields,
        fault=plan.fault,
        layout=plan.layout,
        culprit=plan.culprit,
        place=plan.place,
        attach=plan.attach or "no",
        seed=plan.seed,
        limit=plan.limit,
        expected=[sorted(members) for members in plan.accused],
        named=list(outcome.named),
        exact=frozenset(outcome.named) in plan.accused,
        innocents=sorted(set(outcome.named) - frozenset().union(*plan.accused)),
        well=outcome.well,
        chain=list(msgspec.to_builtins(verdict.chain)) if verdict else [],
    )


def actor_plans(seed: int, only: Iterable[str] = ()) -> Iterator[ActorTrialPlan]:
    """Yields without end: each fault once a round, every round drawn again. ``only`` names faults
    and layouts. Raises UsageError if no fault is left."""
    wanted = set(only)
    layouts = {layout for row in ACTOR_ALL.values() for layout in row.layouts}
    if unknown := wanted - layouts - set(ACTOR_ALL):
        raise UsageError(f"neither a fault nor a layout: {', '.join(sorted(unknown))}")
    where: list[str] = sorted(wanted & layouts) or [""]
    rows = [
        (fault, layout)
        for fault, row in ACTOR_ALL.items()
        for layout in where
        if layout in ("", *row.layouts) and (not wanted - layouts or fault in wanted)
    ]
    if not rows:
        raise UsageError(f"no fault has all of these: {', '.join(sorted(wanted))}")
    for number in count():
        turn, place = divmod(number, len(rows))
        fault, layout = rows[place]
        mode = MODES[(seed + place + turn) % len(MODES)]
        yield draw_actors(fault, seed + number, layout=layout, attach=mode)


def needs_client(plans: Iterable[ActorTrialPlan]) -> bool:
    """Whether any driver connects by Ray Client."""
    return any(plan.fault == "client" for plan in plans)


def needs_dashboard(plans: Iterable[ActorTrialPlan]) -> bool:
    """Whether any is ended by ``ray job stop``, which asks the dashboard."""
    return any(plan.fault == "job-stop" for plan in plans)


def actor_trial(plan: ActorTrialPlan, machines: Machines) -> ActorTrialOutcome:
    """Play one trial in a folder of its own. The outcome says why it failed; nothing is raised."""
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        try:
            return ActorTrial(plan, machines, Stage(machines.ray), Path(folder)).play()
        except (SentinelError, OSError) as error:
            return ActorTrialOutcome(plan=plan, broken=str(error))

"""The second family of the fault suite: jobs of Ray actors. Played by ``suite --family actors``."""

from __future__ import annotations

import tempfile
import time
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
from ray_sentinel.errors import SentinelError, UsageError
from ray_sentinel.model.incident import Verdict
from ray_sentinel.waitgraph.confidence import put_on_culprit


class ActorTrialResult(msgspec.Struct, frozen=True, kw_only=True, tag="actors", tag_field="family"):
    """One trial's result, as it is written."""

    fault: str
    layout: str
    culprit: str
    place: str
    attach: str
    seed: int
    job: str
    clock: str
    limit: float | None
    expected: list[list[str]]
    """The sets of members that are each a right answer."""
    expected_kinds: list[str]
    named: list[str]
    kind: str
    seconds: float | None
    in_time: bool
    exact: bool
    right_kind: bool
    innocents: list[str]
    false_alarms: int
    well: str = ""
    chain: list[dict[str, Any]] = []
    wrong: str
    broken: str
    summary: str = ""
    confidence: float = 0.0
    """The confidence (0..1) that the first incident states."""
    witnesses: dict[str, float] = {}
    """What each witness puts on the culprit of whom it is least sure."""


def actor_result_of(outcome: ActorTrialOutcome) -> ActorTrialResult:
    """The result of a trial. Early incidents and those of healthy jobs are false alarms."""
    plan, incidents = outcome.plan, outcome.incidents
    healthy = plan.clock == "healthy"
    began = outcome.began or 0.0
    early = [one for one in incidents if (one["confirmed_at"] or 0.0) < began]
    first = outcome.incident
    kind = str(first["kind"]) if first else ""
    limit, silent_is_right = plan.limit, plan.clock == "slow" and first is None
    guilty = frozenset().union(*plan.accused)
    told = (first or {}).get("verdict")
    verdict = msgspec.convert(told, Verdict) if told else None
    return ActorTrialResult(
        fault=plan.fault,
        layout=plan.layout,
        culprit=plan.culprit,
        place=plan.place,
        attach=plan.attach or "no",
        seed=plan.seed,
        job=outcome.job,
        clock=plan.clock,
        limit=limit,
        expected=[sorted(members) for members in plan.accused],
        expected_kinds=list(plan.kinds),
        named=list(outcome.named),
        kind=kind,
        seconds=outcome.seconds,
        in_time=limit is None or (outcome.seconds is not None and outcome.seconds <= limit),
        exact=frozenset(outcome.named) in plan.accused,
        right_kind=not kind if healthy else kind in plan.kinds or silent_is_right,
        innocents=sorted(set(outcome.named) - guilty),
        false_alarms=len(incidents) if healthy else len(early),
        well=outcome.well,
        chain=list((told or {}).get("chain", [])),
        wrong=outcome.wrong,
        broken=outcome.broken,
        summary=str(first["summary"]) if first else "",
        confidence=verdict.confidence if verdict else 0.0,
        witnesses=dict(put_on_culprit(verdict)) if verdict else {},
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


def actor_sweep(
    drawn: Iterable[ActorTrialPlan], machines: Machines, *, seconds: float
) -> Iterator[ActorTrialOutcome]:
    """Play plan after plan, one at a time, and begin none after ``seconds``."""
    end = time.monotonic() + seconds
    for plan in drawn:
        if time.monotonic() > end:
            return
        yield actor_trial(plan, machines)

"""The requests of a case: stacks, recorders, captures. Each is recorded in the case."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from ray_sentinel.config import CaptureConfig as Settings
from ray_sentinel.engine.actions import AnyAction, AskRas, AskRecorder, Capture, TakeStacks
from ray_sentinel.engine.incidents.case import Case
from ray_sentinel.engine.verdicts.exits import has_exception, is_abnormal, was_overrun
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.incident import Writer

MOST_ROUNDS = 60
"""Most rounds of stacks in one case that follow soon after each other."""
LOOK_SELDOM = 60.0
"""Seconds between later rounds: what was slow until then may still stop."""
PROCESS_SECONDS = 66.0
"""Seconds for cuda-gdb on one process of a thorough capture: 60, plus the time to detach."""
CAPTURE_SLACK = 120.0
"""Seconds added to the deadline of the tools, for transfer, recorders, output and writing."""
TOOLS_SECONDS = 12.0
"""Seconds after which tools that were sent to the ranks are assumed to be done."""


def everything(case: Case, now: float) -> list[AnyAction]:
    """Request all non-intrusive evidence, as often as is sensible."""
    if case.asked_round >= MOST_ROUNDS:
        due = now - case.asked_round_at >= LOOK_SELDOM
        return stacks(case, now) if due else []
    return [*stacks(case, now), *recorders(case, now), *_ras(case)]


def stacks(case: Case, now: float) -> list[AnyAction]:
    """Request one more round of stacks."""
    ranks = tuple(view.rank for view in case.job.live)
    if not ranks:
        return []
    case.asked_round += 1
    case.asked_round_at = now
    return [TakeStacks(incident=case.incident.id, round=case.asked_round, ranks=ranks)]


def recorders(case: Case, now: float) -> list[AnyAction]:
    """Request the flight recorders, including those that ranks left behind when an exception ended
    them."""
    ranks = tuple(
        view.rank
        for view in case.job.ranks.values()
        if view.attached and (view.alive or (view.exit and has_exception(view.exit)))
    )
    if not ranks:
        return []
    case.recorder_asked_at = now
    case.recorder_pending = True
    # The ranks are busy writing their dumps, which is no sign of progress.
    case.job.disturbed_until = now + TOOLS_SECONDS
    fallen = [exit_ for _, exit_ in case.job.exits_and_dying() if is_abnormal(exit_)]
    overrun = {exit_.rank.id.rank for exit_ in fallen if was_overrun(exit_)}
    return [
        AskRecorder(
            incident=case.incident.id,
            ranks=ranks,
            failed=bool(fallen),
            overrun=tuple(sorted(overrun)),
        )
    ]


def _ras(case: Case) -> list[AnyAction]:
    ranks = tuple(view.rank for view in case.job.live)
    return [AskRas(incident=case.incident.id, ranks=ranks)] if len(ranks) > 1 else []


def capture_seconds(ranks: Iterable[Rank], settings: Settings, *, thorough: bool) -> float:
    """The most seconds that the tools on the slowest node may take."""
    if not thorough or not may_be_thorough(settings):
        return settings.deadline
    most = max(Counter(rank.node for rank in ranks).values(), default=0)
    return settings.deadline + PROCESS_SECONDS * math.ceil(most / settings.max_intrusive_per_node)


def may_be_thorough(settings: Settings) -> bool:
    """Whether cuda-gdb may be run on every rank at all."""
    at_once = min(settings.max_intrusive_per_node, settings.max_intrusive)
    return settings.enabled and settings.cuda_gdb and at_once > 0


def capture(
    case: Case,
    now: float,
    settings: Settings,
    members: tuple[Writer, ...] = (),
    *,
    thorough: bool = False,
) -> Capture:
    """Request all tools. Every live rank is in exactly one of the three lists. ``members`` are
    processes that are named but are not ranks."""
    case.captured_at = now  # also where this fails: it is tried again after the cooldown
    suspects = set(case.incident.suspects)
    live = case.job.live
    chosen = [view.rank for view in live if view.rank.id in suspects]
    waiters: dict[tuple[str, ...], Rank] = {}
    for view, fact in case.seen:
        if view.rank.id not in suspects:
            waiters.setdefault(fact.signature, view.rank)
    picked = {rank.process for rank in (*chosen, *waiters.values())}
    action = Capture(
        incident=case.incident,
        suspects=tuple(chosen),
        waiters=tuple(waiters.values()),
        others=tuple(view.rank for view in live if view.rank.process not in picked),
        gone=tuple(view.rank for view in case.job.ranks.values() if not view.alive),
        members=members,
        thorough=thorough,
    )
    _await_capture(case, action, now, settings)
    case.captures += 1
    case.capturing = True
    return action


def again(case: Case, action: AnyAction, now: float, settings: Settings) -> None:
    """Repeat ``action`` after a restart; its deadlines count from now."""
    match action:
        case TakeStacks(round=number) if number == case.asked_round:
            case.asked_round_at = now
        case AskRecorder():
            case.recorder_asked_at = now
            case.job.disturbed_until = max(case.job.disturbed_until, now + TOOLS_SECONDS)
        case Capture():
            _await_capture(case, action, now, settings)


def _await_capture(case: Case, action: Capture, now: float, settings: Settings) -> None:
    """Record until when a capture may take, and which ranks its debuggers hold: only harmless tools
    run on the others."""
    ranks = (*action.suspects, *action.waiters, *action.others)
    seconds = capture_seconds(ranks, settings, thorough=action.thorough)
    case.capture_due = now + seconds + CAPTURE_SLACK
    until = now + seconds + TOOLS_SECONDS
    case.job.disturbed_until = max(case.job.disturbed_until, until)
    most = settings.max_intrusive if settings.enabled and settings.max_intrusive_per_node else 0
    held = (*action.suspects, *action.waiters)[:most]
    case.tracing = tuple(rank.process for rank in held)
    for rank in held:
        if (view := case.job.ranks.get(rank.process)) is not None:
            view.traced_until = case.job.disturbed_until

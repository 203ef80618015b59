"""What the engine drops when the coordinator uses too much memory, in this order.

Each time, one part drops the older half of what it can spare; a part that has nothing to spare is
skipped. No hang verdict needs what is dropped: the data for rules is kept for longer than they look
back, except for rules on counters that rise over half an hour and more, which then see the last
quarter of an hour. The bundle of a closed incident has everything; an incident without a bundle
keeps its stacks.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ray_sentinel.engine.state import EngineState

LEAST_HISTORY = 60.0
"""Seconds of the series that no rule reads which are always kept: those that are not in the
history's file yet."""
LEAST_SERIES = 900.0
"""Seconds of the series that rules read which are always kept; only the slowest rules, on counters,
look back further."""
LEAST_PULSE = 300.0
"""Seconds of the jobs' pulse that are always kept."""


def drop_oldest(state: EngineState, now: float) -> str:
    """Drop the oldest data of the first part that can spare any.

    Returns the name of that part; "" if no part has anything left to drop.
    """
    for part, let_go in PARTS.items():
        if let_go(state, now):
            state.shed[part] = state.shed.get(part, 0) + 1
            return part
    return ""


def _history(state: EngineState, now: float) -> bool:
    return state.cluster.telemetry.drop_oldest("history", now, LEAST_HISTORY)


def _series(state: EngineState, now: float) -> bool:
    return state.cluster.telemetry.drop_oldest("rules", now, LEAST_SERIES)


def _pulse(state: EngineState, now: float) -> bool:
    pulses = [job.pulse for job in state.cluster.jobs.values()]
    pulses += [job.pulse for job in state.cluster.ray.jobs.values()]
    given = [pulse.drop_oldest(now, LEAST_PULSE) for pulse in pulses]
    return any(given)


def _incidents(state: EngineState, _: float) -> bool:
    """Drop the stacks of the older half of those closed incidents that have a bundle, and still
    have stacks."""
    known = state.store.incidents
    full = [
        (one, one.verdict)
        for one in known.values()
        if one.resolved_at is not None and one.bundle and one.verdict and one.verdict.stacks
    ]
    for one, verdict in full[: (len(full) + 1) // 2]:
        shorter = msgspec.structs.replace(verdict, stacks=())
        known[one.id] = msgspec.structs.replace(one, verdict=shorter)
    return bool(full)


PARTS: dict[str, Callable[[EngineState, float], bool]] = {
    "history": _history,
    "series": _series,
    "pulse": _pulse,
    "incidents": _incidents,
}
"""The parts in order: the series that no rule reads, those that rules read, the jobs' pulse, the
stacks of closed incidents."""

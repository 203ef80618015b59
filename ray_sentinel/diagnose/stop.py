"""Whether and when the job stopped while it was still being watched."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.timeline import stall_limit

NO_STEPS_SECONDS = 120.0
"""Seconds for which GPUs may idle between two phases, where there are no steps; only a longer pause
is a stop."""
LEAD_SECONDS = 1800.0
"""Most seconds between a trouble and the stop of the job that it caused: the next checkpoint may be
that far."""
NEAR_CHECKPOINT = 1.5
"""How many times the longest pause of the earlier checkpoints may pass, after a step at which one
is due, before it is a stop."""


class ProgressStop(msgspec.Struct, frozen=True, kw_only=True):
    """The job's last sign of progress was at ``at``; the data go on to ``end``."""

    at: float
    end: float
    step: float | None
    by: str
    """How the stop was detected: by "steps" or by "power"."""
    uncertainty: float
    latest: float
    """The latest moment at which the step that never ended can have stalled, in Unix seconds."""
    for_good: bool = True
    """The job did not go on afterwards."""

    @property
    def seconds(self) -> float:
        """How long nothing moved."""
        return self.end - self.at


def find(case: JobCase) -> ProgressStop | None:
    """The stop at the end of the data, or else the longest pause that is not a checkpoint; or
    None."""
    return _final(case) or _pause(case)


def ended_by(case: JobCase, at: float) -> ProgressStop | None:
    """The end of the job if it followed what happened ``at``, and soon; None if steps went on.

    It is enough that no step was done any more, however soon the data end after it.
    """
    stop = find(case)
    if stop is not None and stop.for_good:
        return stop if stop.at - LEAD_SECONDS <= at <= stop.latest + 3 * case.cell else None
    last, lead = case.line.last_progress, min(_step(case) + 2 * case.cell, LEAD_SECONDS)
    if not case.line.trained or last is None or last > at + lead:
        return None
    return ProgressStop(at=last, end=case.line.end, step=case.line.step_at(last), by="steps",
                uncertainty=_step(case), latest=max(last, at) + case.cell)  # fmt: skip


def _latest(case: JobCase, at: float, end: float) -> float:
    """The step may have run for a while before it stalled; a checkpoint may have come first."""
    latest = max(at + _step(case), _settled(case, at, end))
    if case.checkpoints and at_checkpoint(case):
        latest = max(latest, at + max(one.end - one.start for one in case.checkpoints))
    return min(latest, end)


def _settled(case: JobCase, at: float, end: float) -> float:
    """When power and utilisation came to the level at which they then stayed."""
    tail = np.flatnonzero((case.times > at) & (case.times <= end))
    if tail.size < 10:
        return at
    util = case.view.panel("gpu.util")
    use = stats.median(util.values, 0) / 100.0 if not util.empty else case.activity
    settled = at
    for values, width in ((case.activity, 0.1), (use, 0.25)):
        level = stats.middle(values[tail[tail.size // 2 :]])
        off = np.abs(values[tail] - level) > width
        # Movement only near the end is not part of the beginning.
        off[int(0.6 * tail.size) :] = False
        last = stats.last_index(off)
        if last is not None:
            settled = max(settled, float(case.times[tail[last]]))
    return settled


def _final(case: JobCase) -> ProgressStop | None:
    line = case.line
    if not line.trained:
        return _by_power(case)
    last = line.last_progress or line.start
    limit = stall_limit(line.step_seconds, line.advances, case.cell)
    held = [one.end - one.start for one in case.checkpoints]
    if held and at_checkpoint(case):
        limit = max(limit, NEAR_CHECKPOINT * max(held))
    if line.silence <= limit:
        return None
    return ProgressStop(
        at=last,
        end=line.end,
        step=line.step_at(last),
        by="steps",
        uncertainty=_step(case),
        latest=_latest(case, last, line.end),
    )


def at_checkpoint(case: JobCase) -> bool:
    """Whether the step after the last one done is where a checkpoint was due."""
    steps = np.array([one.step for one in case.checkpoints])
    last = case.line.step_at(case.line.end)
    if steps.size < 2 or last is None:
        return True
    period = float(np.median(np.diff(steps)))
    return period > 0 and abs((last + 1 - steps[-1]) / period - 1) < max(0.05, 2 / period)


def _by_power(case: JobCase) -> ProgressStop | None:
    if np.isnan(case.activity).all():
        return None
    working = np.flatnonzero(case.activity > 0.75)
    idle = case.activity < 0.6
    if not working.size or not idle.any():
        return None
    at = float(case.times[working[-1]])
    if case.line.end - at <= NO_STEPS_SECONDS:
        return None
    return ProgressStop(at=at, end=case.line.end, step=None, by="power", uncertainty=case.cell,
                latest=at + case.cell)  # fmt: skip


def _pause(case: JobCase) -> ProgressStop | None:
    held = {(one.start, one.end) for one in case.checkpoints}
    pauses = [
        stall
        for stall in case.line.stalls
        if stall.end < case.line.end
        and not any(start <= stall.end and end >= stall.start for start, end in held)
        and not any(stall.start <= restart <= stall.end for restart in case.line.restarts)
    ]
    if not pauses:
        return None
    longest = max(pauses, key=lambda stall: stall.end - stall.start)
    return ProgressStop(
        at=longest.start,
        end=longest.end,
        step=longest.step,
        by="steps",
        uncertainty=_step(case),
        latest=_latest(case, longest.start, longest.end),
        for_good=False,
    )


def _step(case: JobCase) -> float:
    usual = case.line.step_seconds
    return max(case.cell, usual if np.isfinite(usual) else 0.0)

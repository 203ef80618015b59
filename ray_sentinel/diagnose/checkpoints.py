"""Which steps are checkpoints, so that their effects are not taken for faults.

A checkpoint shows as a slow step or a pause. It is known as one by its period (the slow steps lie
on multiples of one number of steps, or at one distance in time), by the period in the job's own
configuration, or by its signature: GPUs idle while storage works, and all goes on afterwards.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.diagnose.timeline import Timeline

SLOW = 1.35
"""A slow step takes so many times the usual."""
LONGEST = 2400.0
"""Seconds; a longer pause is no checkpoint, whatever its step."""
LOCAL = 41
"""Step times whose median is the usual one at that moment: a job may slow down for good."""
STEPS_AFTER = 2
"""Steps after an asynchronous checkpoint that it still may slow."""


class Checkpoint(msgspec.Struct, frozen=True):
    """Training was held up by a save from ``start`` to ``end`` at ``step``."""

    start: float
    end: float
    step: float
    by: Literal["configuration", "period", "signature"]


class SlowStep(msgspec.Struct, frozen=True):
    """A step that took long: began at ``start``, ended at ``end``."""

    start: float
    end: float
    step: float


def slow_steps(line: Timeline, durations: Floats, times: Floats) -> list[SlowStep]:
    """Steps or pauses that stand out, neighbours joined.

    ``durations`` (T,) are the step times where known, NaN else.
    """
    found: list[SlowStep] = []
    usual = line.step_seconds
    if not np.isfinite(usual) or usual <= 0:
        return found
    cell = float(times[1] - times[0]) if times.size > 1 else 1.0
    local = stats.rolling_median(durations, LOCAL)
    noise = float(stats.sigma(durations - local)) if np.isfinite(durations).any() else 0.0
    limit = np.maximum(SLOW * local, local + 6 * noise)
    for index in np.flatnonzero(np.isfinite(durations) & (durations > limit)):
        end = float(times[index])
        found.append(SlowStep(end - float(durations[index]), end, line.step_at(end) or 0.0))
    gaps = np.diff(line.advances)
    rises = np.maximum(np.diff(line.steps), 1.0)
    for index in np.flatnonzero(gaps - rises * usual > max(3 * cell, (SLOW - 1) * usual)):
        if line.steps[index + 1] < line.steps[index]:
            continue
        found.append(
            SlowStep(
                float(line.advances[index]),
                float(line.advances[index + 1]),
                float(line.steps[index + 1]),
            )
        )
    return _merged(found, 2 * max(usual, cell))


def _merged(found: list[SlowStep], near: float) -> list[SlowStep]:
    merged: list[SlowStep] = []
    for slow in sorted(found, key=lambda slow: (slow.start, slow.end)):
        if merged and slow.start <= merged[-1].end + near:
            last = merged.pop()
            slow = SlowStep(last.start, max(last.end, slow.end), last.step)
        merged.append(slow)
    return merged


def period_of(slow: list[SlowStep]) -> float | None:
    """The number of steps between checkpoints, from at least three slow steps; else None."""
    steps = np.array([one.step for one in slow])
    if steps.size < 3:
        return None
    gaps = np.diff(steps)
    best: tuple[float, float] | None = None
    for period in sorted({float(gap) for gap in gaps if gap >= 2}):
        slack = max(1.5, 0.03 * period)
        phase = np.abs((steps[:, None] - steps[None, :] + period / 2) % period - period / 2)
        share = float(np.max((phase <= slack).mean(axis=1)))
        expected = (steps[-1] - steps[0]) / period + 1
        hit = float((phase <= slack).sum(axis=1).max()) / expected
        score = share * min(hit, 1.0)
        if share >= 0.6 and hit >= 0.6 and (best is None or score > best[0] + 1e-9):
            best = (score, period)
    return best[1] if best else None


def find(
    slow: list[SlowStep], line: Timeline, saving: Bools, times: Floats, configured: float | None
) -> tuple[Checkpoint, ...]:
    """The checkpoints among the slow steps.

    ``saving`` (T,) is where the signature shows (GPUs idle while storage works).
    ``configured`` is the period in the job's configuration, if known.
    """
    period = configured or period_of(slow)
    anchor = _anchor(slow, period) if period and not configured else 0.0
    found = []
    for one in slow:
        if one.end - one.start > LONGEST or one.end >= line.end:
            continue
        by: Literal["configuration", "period", "signature"]
        if period and _on(one.step - anchor, period):
            by = "configuration" if configured else "period"
        elif saving[(times >= one.start) & (times <= one.end)].any():
            by = "signature"
        else:
            continue
        found.append(Checkpoint(one.start, one.end, one.step, by))
    return tuple(found)


def _anchor(slow: list[SlowStep], period: float) -> float:
    steps = np.array([one.step for one in slow])
    phase = np.abs((steps[:, None] - steps[None, :] + period / 2) % period - period / 2)
    return float(steps[int(np.argmax((phase <= max(1.5, 0.03 * period)).sum(axis=1)))])


def _on(offset: float, period: float) -> bool:
    phase = (offset + period / 2) % period - period / 2
    return abs(phase) <= max(1.5, 0.03 * period)


def cells(found: tuple[Checkpoint, ...], times: Floats, usual: float) -> Bools:
    """Cells (T,) that a checkpoint may have touched, the steps after it included."""
    touched = np.zeros(times.size, dtype=bool)
    cell = float(times[1] - times[0]) if times.size > 1 else 1.0
    after = STEPS_AFTER * (usual if np.isfinite(usual) else 0.0) + cell
    for one in found:
        touched |= (times >= one.start - cell) & (times <= one.end + after)
    return touched

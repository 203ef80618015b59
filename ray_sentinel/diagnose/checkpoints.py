"""Which steps are checkpoints, so that their effects are not taken for faults.

A checkpoint shows as a slow step or a pause. It is recognised by its period (the slow steps lie on
multiples of one number of steps, or at one distance in time), by the period in the job's own
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
"""How many times the usual time a slow step takes, at least."""
LONGEST = 2400.0
"""Most seconds that a checkpoint takes; a longer pause is none, whatever its step."""
LOCAL = 41
"""Number of step times whose median is the usual one at that moment: a job may slow down for
good."""
WARM_UP = 3
"""Number of first steps, which are slow because they compile and warm caches."""
DRIFT = 0.03
"""Share of the period by which a checkpoint may come early or late."""
STEPS_AFTER = 2
"""Number of steps after an asynchronous checkpoint that it may still slow."""


class SlowStep(msgspec.Struct, frozen=True):
    """A step that took long, from ``start`` to ``end``."""

    start: float
    end: float
    step: float


class CheckpointPause(SlowStep, frozen=True):
    """A slow step that held training up for a save."""

    by: Literal["configuration", "period", "signature"]


def slow_steps(line: Timeline, durations: Floats, times: Floats) -> list[SlowStep]:
    """Steps or pauses that stand out, neighbours joined.

    ``durations`` (T,) are the step times where known, otherwise NaN.
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
    for index in np.flatnonzero(gaps - rises * usual > max(2 * cell, (SLOW - 1) * usual)):
        if line.steps[index + 1] < line.steps[index]:
            continue
        found.append(
            SlowStep(
                float(line.advances[index]),
                float(line.advances[index + 1]),
                float(line.steps[index + 1]),
            )
        )
    began = (
        float(line.advances[min(WARM_UP, line.advances.size - 1)]) if line.advances.size else 0.0
    )
    return _merged([one for one in found if one.end > began], 2 * max(usual, cell))


def _merged(found: list[SlowStep], near: float) -> list[SlowStep]:
    merged: list[SlowStep] = []
    for slow in sorted(found, key=lambda slow: (slow.start, slow.end)):
        if merged and slow.start <= merged[-1].end + near:
            last = merged.pop()
            slow = SlowStep(last.start, max(last.end, slow.end), last.step)
        merged.append(slow)
    return merged


def period_of(slow: list[SlowStep], slack: float = 1.5) -> float | None:
    """The number of steps between checkpoints, from at least three slow steps; else None.

    ``slack`` is by how many steps the step of a slow step may be off.
    """
    steps = np.array([one.step for one in slow])
    if steps.size < 3:
        return None
    gaps = np.diff(steps)
    candidates = {float(gap) for gap in gaps} | {float(round(np.median(gaps)))}
    best: tuple[float, float] | None = None
    for period in sorted(gap for gap in candidates if gap >= max(2.0, 2.5 * slack)):
        on = _phase(steps[:, None] - steps[None, :], period) <= slack + DRIFT * period
        share = float(on.mean(axis=1).max())
        expected = (steps[-1] - steps[0]) / period + 1
        hit = min(float(on.sum(axis=1).max()) / expected, 1.0)
        if share >= 0.6 and hit >= 0.6 and (best is None or share * hit > best[0] + 1e-9):
            best = (share * hit, period)
    return best[1] if best else None


def _phase(offset: Floats, period: float) -> Floats:
    """Distance to the nearest multiple of the period."""
    return np.asarray(np.abs((offset + period / 2) % period - period / 2))


def find(
    slow: list[SlowStep], line: Timeline, saving: Bools, times: Floats, configured: float | None
) -> tuple[CheckpointPause, ...]:
    """The checkpoints among the slow steps.

    ``saving`` (T,) is where the signature shows (GPUs idle while storage works).
    ``configured`` is the period in the job's configuration, if known.
    """
    slack = _slack(line, times)
    period = configured or period_of(slow, slack)
    anchor = _anchor(slow, period, slack) if period and not configured else 0.0
    found = []
    for one in slow:
        if one.end - one.start > LONGEST or one.end >= line.end:
            continue
        by: Literal["configuration", "period", "signature"]
        if period and float(_phase(np.array(one.step - anchor), period)) <= slack + DRIFT * period:
            by = "configuration" if configured else "period"
        elif saving[(times >= one.start) & (times <= one.end)].any():
            by = "signature"
        else:
            continue
        found.append(CheckpointPause(one.start, one.end, one.step, by))
    return tuple(found)


def _slack(line: Timeline, times: Floats) -> float:
    """Steps by which the step read at a moment may be off: those of one cell, and one more."""
    cell = float(times[1] - times[0]) if times.size > 1 else 1.0
    usual = line.step_seconds
    return 1.5 + (cell / usual if np.isfinite(usual) and usual > 0 else 0.0)


def _anchor(slow: list[SlowStep], period: float, slack: float) -> float:
    steps = np.array([one.step for one in slow])
    on = _phase(steps[:, None] - steps[None, :], period) <= slack + DRIFT * period
    return float(steps[int(np.argmax(on.sum(axis=1)))])


def cells(found: tuple[CheckpointPause, ...], times: Floats, usual: float) -> Bools:
    """Cells (T,) that a checkpoint may have touched, the steps after it included."""
    touched = np.zeros(times.size, dtype=bool)
    cell = float(times[1] - times[0]) if times.size > 1 else 1.0
    after = STEPS_AFTER * (usual if np.isfinite(usual) else 0.0) + cell
    for one in found:
        touched |= (times >= one.start - cell) & (times <= one.end + after)
    return touched

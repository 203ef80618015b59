"""How far the job got, and when: steps against wall clock, stalls, restarts, the end."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.panel import SeriesPanel
from ray_sentinel.diagnose.series import Bools, Floats

STALL_FACTOR = 8.0
"""How many usual steps a pause must last to be a stall."""
STALL_SECONDS = 60.0
"""Seconds that a pause must last to be a stall, however short the steps are."""
RESTART_QUIET = 2
"""Number of steps by which the front may fall back without a restart."""


class Stall(msgspec.Struct, frozen=True):
    """Nothing advanced between ``start`` and ``end``; ``step`` was the last one done."""

    start: float
    end: float
    step: float


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The job's progress. Times are Unix seconds; cells are those of the view."""

    metric: str = ""
    front: Floats
    """The step reached in each cell (T,), NaN before the first."""
    advances: Floats
    """The times (N,) at which the step rose."""
    steps: Floats
    """The step reached at each advance (N,)."""
    step_seconds: float = float("nan")
    """Seconds that a step usually takes."""
    start: float
    """The time of the first cell with any data."""
    end: float
    """The time of the last cell with data of most hosts."""
    last_progress: float | None = None
    stalls: tuple[Stall, ...] = ()
    """The pauses that ended, and the last one if the data go on without progress."""
    restarts: tuple[float, ...] = ()

    @property
    def trained(self) -> bool:
        """Whether the step rose at least twice."""
        return self.advances.size >= 2

    @property
    def silence(self) -> float:
        """Seconds of data after the last progress."""
        return self.end - self.last_progress if self.last_progress is not None else 0.0

    def step_at(self, moment: float) -> float | None:
        """The step reached at a given moment."""
        before = np.flatnonzero(self.advances <= moment)
        return float(self.steps[before[-1]]) if before.size else None

    def time_of(self, step: float) -> float | None:
        """When a step was first reached."""
        reached = np.flatnonzero(self.steps >= step)
        return float(self.advances[reached[0]]) if reached.size else None


def build(step: SeriesPanel, step_time: SeriesPanel, presence: Bools, times: Floats) -> Timeline:
    """From the step series, the step times (may be empty) and where any host has data (H, T)."""
    start, end = _ends(presence, times)
    if step.empty:
        nothing = np.empty(0)
        return Timeline(front=np.full(times.size, np.nan), advances=nothing,
                        steps=nothing, start=start, end=end)  # fmt: skip
    front = np.max(np.where(np.isfinite(step.values), step.values, -np.inf), axis=0)
    front = np.where(np.isfinite(front), front, np.nan)
    advances, steps, restarts = _advances(front, times)
    usual = _step_seconds(step_time, advances, steps)
    last = float(advances[-1]) if advances.size else None
    stalls = _stalls(advances, steps, usual, end, float(times[1] - times[0]))
    return Timeline(
        metric=step.metric,
        front=stats.carried(front),
        advances=advances,
        steps=steps,
        step_seconds=usual,
        start=start,
        end=max(end, last or end),
        last_progress=last,
        stalls=stalls,
        restarts=tuple(float(times[index]) for index in restarts),
    )


def superseded(line: Timeline, times: Floats) -> Bools:
    """(T,) cells whose steps were lost at a restart and repeated after it.

    For a step that was done twice only the later time counts: the result of the earlier one was
    lost.
    """
    lost = np.zeros(times.size, dtype=bool)
    for restart in line.restarts:
        cell = int(np.searchsorted(times, restart))
        # A restart is noticed some cells after the fall at which it began.
        while cell > 0 and line.front[cell - 1] <= line.front[cell]:
            cell -= 1
        lost[:cell] |= line.front[:cell] >= line.front[cell]
    return lost


def _ends(presence: Bools, times: Floats) -> tuple[float, float]:
    if not presence.size or not presence.any():
        return float(times[0]), float(times[-1])
    count = presence.sum(axis=0)
    first = int(np.flatnonzero(count > 0)[0])
    last = int(np.flatnonzero(count >= max(1, 0.5 * np.max(count)))[-1])
    return float(times[first]), float(times[last])


def _advances(front: Floats, times: Floats) -> tuple[Floats, Floats, list[int]]:
    """Times and steps of each rise, and the cells in which the job began again lower down.

    One late series (a host whose bridge lags) makes the front flicker by a step or two: only a
    fall that lasts is a restart.
    """
    known = np.flatnonzero(np.isfinite(front))
    found: list[tuple[float, float]] = []
    restarts: list[int] = []
    top = -np.inf
    low = 0
    for cell in known:
        value = front[cell]
        if value > top:
            found.append((float(times[cell]), float(value)))
            top, low = value, 0
        elif value < top - RESTART_QUIET:
            low += 1
            if low >= 3:
                restarts.append(int(cell))
                found.append((float(times[cell]), float(value)))
                top, low = value, 0
        else:
            low = 0
    pairs = np.array(found, dtype=np.float64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1], restarts


def _step_seconds(step_time: SeriesPanel, advances: Floats, steps: Floats) -> float:
    if not step_time.empty:
        usual = stats.middle(step_time.values)
        if np.isfinite(usual) and usual > 0:
            return usual
    if advances.size < 2:
        return float("nan")
    rises, gaps = np.diff(steps), np.diff(advances)
    good = rises > 0
    return stats.middle(gaps[good] / rises[good]) if good.any() else float("nan")


def _stalls(
    advances: Floats, steps: Floats, usual: float, end: float, cell: float
) -> tuple[Stall, ...]:
    if not advances.size:
        return ()
    edges = np.append(advances, end)
    limit = stall_limit(usual, advances, cell)
    return tuple(
        Stall(float(left), float(right), float(step))
        for left, right, step in zip(edges[:-1], edges[1:], steps, strict=True)
        if right - left > limit
    )


def stall_limit(usual: float, advances: Floats, cell: float) -> float:
    """Seconds without progress from which a pause is a stall."""
    gap = stats.middle(np.diff(advances)) if advances.size > 1 else 0.0
    usual = usual if np.isfinite(usual) else 0.0
    return max(STALL_SECONDS, STALL_FACTOR * max(usual, gap), 4 * cell)

"""Losses that break, rise for good, or are set back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import schedule
from ray_sentinel.diagnose.detect.curve import LOCAL, Curve, broken, describe, joint
from ray_sentinel.diagnose.panel import SeriesPanel
from ray_sentinel.diagnose.series import Bools, Floats

LOSS_RISE = 0.05
"""Share of its level by which a loss must rise to count as high."""
SETBACK_RISE = 0.2
"""Share of its level by which a loss that comes back must have risen to be a setback."""
SETBACK_SHARE = 0.1
"""Share of the training that a setback must have taken: what was done in that time was lost."""
LAST = 1
"""Least number of values that are not finite at the end of a broken loss. One is enough: what made
it so is in the weights, or ended the job."""


def find(case: JobCase) -> list[Curve]:
    """The events in the loss."""
    panel = case.view.panel("train.loss")
    found, loss = broken(case, panel, joint(case, panel), "loss", "loss", LAST)
    return [*found, *_rises(case, panel, loss)]


def _rises(case: JobCase, panel: SeriesPanel, loss: Floats) -> list[Curve]:
    known = np.flatnonzero(np.isfinite(loss))
    if known.size < 20:
        return []
    calm = stats.rolling_median(loss[known], 5)
    lowest, expected = _lowest(calm, _restarts(case, known))
    noise = _noise(calm)
    rise = calm - lowest
    high = (rise > np.maximum(LOSS_RISE * np.abs(lowest), 8.0 * noise)) & ~expected
    runs = [(a, b) for a, b in stats.runs(high) if b - a >= 3]
    if not runs:
        return []
    left, right = max(runs, key=lambda run: float(rise[run[0] : run[1]].max()))
    start = left
    while start > 0 and rise[start - 1] > 3.0 * noise and not expected[start - 1]:
        start -= 1
    cells = np.zeros(loss.size, dtype=bool)
    cells[known[start:right]] = True
    size = float(rise[left:right].max())
    back = right < known.size and known.size - right > 3
    level = float(lowest[left])
    share = (right - left) / known.size
    setback = back and share >= SETBACK_SHARE and size >= SETBACK_RISE * abs(level)
    kind = "loss-setback" if setback else "loss-spike" if back else "loss-diverged"
    text = (
        f"the loss rose from {level:.3g} by {size:.3g}"
        + {
            "loss-setback": f" and came back only after {share:.0%} of the training",
            "loss-spike": " and came back",
            "loss-diverged": " and did not come back",
        }[kind]
    )
    return [describe(case, panel, kind, text, cells, size, lasting=not back or setback)]


def _noise(calm: Floats) -> float:
    """How much a settled loss fluctuates: from one value to the next, and slowly (similar batches,
    domains read one after the other)."""
    quick = float(stats.sigma(np.diff(calm)))
    slow = float(stats.sigma(calm - stats.rolling_median(calm, LOCAL)))
    return max(quick, slow) + 1e-12


def _restarts(case: JobCase, known: NDArray[np.intp]) -> list[int]:
    """Places among the known cells at which the schedule began another cycle."""
    cells = case.once(schedule.restarts)
    return sorted({int(np.searchsorted(known, cell)) for cell in cells} - {known.size})


def _lowest(calm: Floats, restarts: list[int]) -> tuple[Floats, Bools]:
    """The lowest level so far (N,), and where a rise is what a restart of the schedule does.

    The loss climbs with the learning rate at first. The limit for later rises is then the top of
    that climb.
    """
    lowest = np.minimum.accumulate(calm)
    expected = np.zeros(calm.size, dtype=bool)
    for start, end in pairwise([*restarts, calm.size]):
        top = start + int(np.argmax(calm[start : min(end, start + LOCAL)]))
        expected[start : top + 1] = True
        lowest[top:end] = np.minimum.accumulate(calm[top:end])
    return lowest, expected

"""The learning rate: jumps, drops, and cycles that begin again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect.curve import Curve, describe, joint
from ray_sentinel.diagnose.series import Floats

LR_JUMP = 1.5
"""How many times the value before, or its inverse, the learning rate must reach to jump or drop."""
LR_SMOOTH = 20.0
"""How many times the schedule's usual change a jump must be."""
REACHED = 1.001
"""Factor on the highest value so far that a jump must exceed: below it, apart from rounding, the
schedule has been there before."""
FIRST = 10
"""Number of known cells from which the schedule is learned before anything can be said of it."""


def find(case: JobCase) -> list[Curve]:
    """The events in the learning rate."""
    panel = case.view.panel("train.lr")
    rate, known = _known(case)
    if known.size < FIRST + 2:
        return []
    series = rate[known]
    change = np.abs(np.diff(series))
    moving = change[change > 0]
    usual = float(np.median(moving)) if moving.size > 3 else 0.0
    highest = np.maximum.accumulate(series)
    found = []
    for index in np.flatnonzero(change > LR_SMOOTH * max(usual, 1e-12 * abs(series).max())):
        before, after = float(series[index]), float(series[index + 1])
        if index < FIRST or before <= 0:
            continue
        cells = np.zeros(rate.size, dtype=bool)
        cells[known[index + 1] :] = True
        if after > LR_JUMP * before and after > REACHED * highest[index]:
            text = f"learning rate jumped from {before:.3g} to {after:.3g}"
            found.append(describe(case, panel, "lr-jump", text, cells, after - before))
        elif after < before / LR_JUMP:
            text = f"learning rate dropped from {before:.3g} to {after:.3g}"
            found.append(describe(case, panel, "lr-drop", text, cells, after - before))
    return found[:2]


def restarts(case: JobCase) -> tuple[int, ...]:
    """The cells at which a schedule with warm restarts begins another cycle.

    The rate rises again, at once or over some steps, to no more than it has been before.
    """
    rate, known = _known(case)
    if known.size < FIRST + 2:
        return ()
    series = rate[known]
    highest = np.maximum.accumulate(series)
    moves = np.flatnonzero(np.diff(series))
    found = []
    for left, right in stats.runs(series[moves + 1] > series[moves]):
        first, last = int(moves[left]), int(moves[right - 1]) + 1
        if first < FIRST or series[last] > REACHED * highest[first]:
            continue
        if series[last] > LR_JUMP * series[first]:
            found.append(int(known[first + 1]))
    return tuple(found)


def without_warm_up(case: JobCase) -> str | None:
    """What is odd if the configuration mentions a warm-up, and the rate was flat from the first
    step on; None if nothing is odd."""
    steps = case.logs.warm_up_steps
    rate, known = _known(case)
    first = case.line.steps[0] if case.line.steps.size else np.inf
    if steps is None or known.size < FIRST or first > steps / 2:
        return None
    until = case.line.time_of(steps)
    inside = known[case.times[known] <= (until if until is not None else case.line.end)]
    if inside.size < FIRST or np.ptp(rate[inside]) > 1e-3 * np.abs(rate[inside]).max():
        return None
    return (
        f"the learning rate is {rate[inside[0]]:.3g} from the first step on, where the "
        f"configuration has a warm-up of {steps:.0f} steps"
    )


def _known(case: JobCase) -> tuple[Floats, NDArray[np.intp]]:
    """The rate (T,), and the cells in which it is known."""
    rate = joint(case, case.view.panel("train.lr"))
    return rate, np.flatnonzero(np.isfinite(rate))

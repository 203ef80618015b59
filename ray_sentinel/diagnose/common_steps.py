"""Training curves of two jobs at the same steps: the loss of a step does not depend on how long the
job took to get there."""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect.curve import joint
from ray_sentinel.diagnose.series import Bools, Floats


def inside(case: JobCase, steps: tuple[float, float]) -> Bools:
    """(T,) the steady cells of the common steps, without those that were repeated."""
    return case.steady & _reached(case, steps)


def _reached(case: JobCase, steps: tuple[float, float]) -> Bools:
    common = (case.line.front >= steps[0]) & (case.line.front <= steps[1])
    return np.asarray(common & ~case.superseded)


def at_common_steps(
    first: JobCase, second: JobCase, key: str, steps: tuple[float, float]
) -> tuple[Floats, Floats]:
    """A curve of both jobs at the same steps (N,): those of the job that recorded fewer, with the
    other's values interpolated linearly."""
    one, other = _by_step(first, key, steps), _by_step(second, key, steps)
    if not one[0].size or not other[0].size:
        return np.empty(0), np.empty(0)
    low, high = max(one[0][0], other[0][0]), min(one[0][-1], other[0][-1])
    places = min(one[0], other[0], key=lambda known: known.size)
    places = places[(places >= low) & (places <= high)]
    return np.interp(places, *one), np.interp(places, *other)


def _by_step(case: JobCase, key: str, steps: tuple[float, float]) -> tuple[Floats, Floats]:
    """The steps at which the curve is known, rising, and its last finite value at each."""
    curve = joint(case, case.view.panel(key))
    cells = np.flatnonzero(inside(case, steps) & np.isfinite(curve))[::-1]
    places, first = np.unique(case.line.front[cells], return_index=True)
    return places, curve[cells[first]]


def not_finite(case: JobCase, key: str, title: str, steps: tuple[float, float]) -> str:
    """In how many samples of the common steps a job's curve is not finite; empty if in none."""
    curve = joint(case, case.view.panel(key))
    cells = np.flatnonzero(_reached(case, steps) & ~np.isnan(curve))
    off = cells[np.isinf(curve[cells])]
    if not off.size:
        return ""
    step = case.line.front[off[0]]
    return (
        f"the {title} is not finite in {off.size} of {cells.size} samples, first at step {step:.0f}"
    )

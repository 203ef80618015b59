"""The training curves: losses that break, gradients that jump, routing and schedules that shift."""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import divergence, schedule
from ray_sentinel.diagnose.detect.curve import LOCAL, Curve, broken, describe, joint
from ray_sentinel.diagnose.shifts import find_shifts

GRADIENT_SPIKE = 5.0
"""How many times the running median a gradient norm must exceed to be a spike."""
GRADIENT_LAST = 3
"""Least number of norms at the end that are not finite: fewer are the search of a loss scaler."""
MOE_RISE = 0.25
"""Share of its level by which an imbalance of the experts must rise for good."""


def find(case: JobCase) -> tuple[Curve, ...]:
    """All of them, in order of time."""
    found = [*divergence.find(case), *_gradients(case), *_moe(case), *schedule.find(case)]
    return tuple(sorted(found, key=lambda curve: curve.at))


def _gradients(case: JobCase) -> list[Curve]:
    panel = case.view.panel("train.raw_grad_norm")
    if panel.empty:
        panel = case.view.panel("train.grad_norm")
    found, norm = broken(case, panel, joint(case, panel, 1.0), "grad", "gradient norm",
                         GRADIENT_LAST)  # fmt: skip
    if np.isfinite(norm).sum() < 20:
        return found
    local = stats.trailing_median(norm, LOCAL)
    noise = float(stats.sigma(norm - stats.rolling_median(norm, LOCAL)))
    high = (norm > GRADIENT_SPIKE * local) & (norm > local + 10 * noise)
    if case.line.advances.size:
        # The first steps after an initialisation are wild by nature.
        high &= case.times > case.line.advances[min(10, case.line.advances.size - 1)]
    if high.any():
        size = float(np.nanmax(np.where(high, norm / local, np.nan)))
        lasting = int(high.sum()) >= 5
        found.append(describe(case, panel, "grad-spike",
                            f"gradient norm up to {size:.0f} times the usual", high, size,
                            lasting=lasting))  # fmt: skip
    return found


def _moe(case: JobCase) -> list[Curve]:
    panel = case.view.panel("train.moe")
    values = joint(case, panel)
    if np.isfinite(values).sum() < 12:
        return []
    shifts = [
        shift
        for shift in find_shifts(values, case.times, least=0.0, relative=MOE_RISE)
        if shift.size > 0
    ]
    if not shifts:
        return []
    worst = max(shifts, key=lambda shift: shift.size)
    cells = (values > (worst.before + worst.after) / 2) & (case.times >= worst.at)
    cells = stats.joined(cells, 3)
    text = f"MoE load-balance loss up from {worst.before:.3g} to {worst.after:.3g}"
    return [describe(case, panel, "moe-shift", text, cells, worst.size, at=worst.at)]

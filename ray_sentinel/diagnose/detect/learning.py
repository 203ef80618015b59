"""The training curves: losses that break, gradients that jump, routing and schedules that shift."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import Case
from ray_sentinel.diagnose.panel import Panel
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.diagnose.shifts import find_shifts

LOSS_RISE = 0.05
"""Share of its level by which a loss must rise for good."""
SETBACK_RISE = 0.2
"""Share of its level by which a loss that comes back must have risen to be a setback ..."""
SETBACK_SHARE = 0.1
"""... and of the training, that it took: what was done in that time was lost."""
GRADIENT_SPIKE = 5.0
"""Times the running median."""
MOE_RISE = 0.25
"""Share of its level by which an imbalance of the experts must rise for good."""
LR_JUMP = 1.5
"""Times the value before, up or down."""
LR_SMOOTH = 20.0
"""A jump is so many times the schedule's usual change."""
LOCAL = 61
"""Cells of the running median that tells what is usual at a moment."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Something a training curve did."""

    kind: str
    """"loss-nan", "loss-diverged", "loss-setback", "loss-spike", "grad-spike", "grad-nan",
    "moe-shift", "lr-jump", "lr-drop"."""
    at: float
    lasting: bool
    cells: Bools
    anomaly: Anomaly


def find(case: Case) -> tuple[Curve, ...]:
    """All of them, in order of time."""
    found: list[Curve] = []
    found += _loss(case)
    found += _gradients(case)
    found += _moe(case)
    found += _rate(case)
    return tuple(sorted(found, key=lambda curve: curve.at))


def _one(panel: Panel, q: float = 0.5) -> Floats:
    """(T,) one curve from all rows; a sample that is not finite in any of them stays so."""
    if panel.empty:
        return np.full(panel.times.size, np.nan)
    middle = stats.quantile(panel.values, q, axis=0)
    return np.where(np.isinf(panel.values).any(axis=0), np.inf, middle)


def _curve(case: Case, panel: Panel, kind: str, text: str, cells: Bools, size: float,
           at: float | None = None, lasting: bool = True) -> Curve:  # fmt: skip
    first = int(np.flatnonzero(cells)[0])
    moment = float(case.times[first]) if at is None else at
    step = case.line.step_at(moment)
    where = f" at step {step:.0f}" if step is not None else ""
    anomaly = Anomaly(
        kind=f"train.{kind}",
        text=text + where,
        at=moment,
        until=float(case.times[stats.last_index(cells) or first]),
        uncertainty=max(case.cell, case.line.step_seconds if case.line.trained else 0.0),
        size=size,
        metric=panel.metric,
        promql=panel.promql(),
    )
    return Curve(kind=kind, at=moment, lasting=lasting, cells=cells, anomaly=anomaly)


def _loss(case: Case) -> list[Curve]:
    panel = case.view.panel("train.loss")
    loss = _one(panel)
    broken = np.isinf(loss)
    found = []
    if broken.any():
        found.append(_curve(case, panel, "loss-nan", "the loss is not finite any more",
                            broken, float("inf")))  # fmt: skip
        loss = np.where(broken, np.nan, loss)
    found += _divergence(case, panel, loss)
    return found


def _divergence(case: Case, panel: Panel, loss: Floats) -> list[Curve]:
    known = np.flatnonzero(np.isfinite(loss))
    if known.size < 20:
        return []
    calm = np.full(loss.size, np.nan)
    calm[known] = stats.rolling_median(loss[known], 5)
    noise = float(stats.sigma(np.diff(calm[known]))) + 1e-12
    lowest = np.minimum.accumulate(calm[known])
    rise = calm[known] - lowest
    limit = np.maximum(LOSS_RISE * np.abs(lowest), 8.0 * noise)
    high = rise > limit
    if not high.any():
        return []
    runs = [(a, b) for a, b in stats.runs(high) if b - a >= 3]
    if not runs:
        return []
    left, right = max(runs, key=lambda run: float(rise[run[0] : run[1]].max()))
    start = left
    while start > 0 and rise[start - 1] > 3.0 * noise:
        start -= 1
    cells = np.zeros(loss.size, dtype=bool)
    cells[known[start]] = True
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
    return [_curve(case, panel, kind, text, cells, size, lasting=not back or setback)]


def _gradients(case: Case) -> list[Curve]:
    panel = case.view.panel("train.raw_grad_norm")
    if panel.empty:
        panel = case.view.panel("train.grad_norm")
    norm = _one(panel, 1.0)
    found = []
    broken = np.isinf(norm)
    if broken.any():
        found.append(_curve(case, panel, "grad-nan", "the gradient norm is not finite any more",
                            broken, float("inf")))  # fmt: skip
        norm = np.where(broken, np.nan, norm)
    if np.isfinite(norm).sum() < 20:
        return found
    local = stats.trailing_median(norm, LOCAL)
    noise = float(stats.sigma(norm - stats.rolling_median(norm, LOCAL)))
    with np.errstate(invalid="ignore"):
        high = (norm > GRADIENT_SPIKE * local) & (norm > local + 10 * noise)
    if case.line.advances.size:
        # The first steps after an initialisation are wild by nature.
        high &= case.times > case.line.advances[min(10, case.line.advances.size - 1)]
    if high.any():
        size = float(np.nanmax(np.where(high, norm / local, np.nan)))
        lasting = int(high.sum()) >= 5
        found.append(_curve(case, panel, "grad-spike",
                            f"gradient norm up to {size:.0f} times the usual", high, size,
                            lasting=lasting))  # fmt: skip
    return found


def _moe(case: Case) -> list[Curve]:
    panel = case.view.panel("train.moe")
    values = _one(panel)
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
    with np.errstate(invalid="ignore"):
        cells = (values > (worst.before + worst.after) / 2) & (case.times >= worst.at)
    cells = stats.joined(cells, 3)
    text = f"MoE load-balance loss up from {worst.before:.3g} to {worst.after:.3g}"
    return [_curve(case, panel, "moe-shift", text, cells, worst.size, at=worst.at)]


def _rate(case: Case) -> list[Curve]:
    panel = case.view.panel("train.lr")
    rate = _one(panel)
    known = np.flatnonzero(np.isfinite(rate))
    if known.size < 12:
        return []
    series = rate[known]
    change = np.abs(np.diff(series))
    moving = change[change > 0]
    usual = float(np.median(moving)) if moving.size > 3 else 0.0
    found = []
    for index in np.flatnonzero(change > LR_SMOOTH * max(usual, 1e-12 * abs(series).max())):
        before, after = float(series[index]), float(series[index + 1])
        if index < 10 or before <= 0:
            continue
        cells = np.zeros(rate.size, dtype=bool)
        cells[known[index + 1] :] = True
        if after > LR_JUMP * before:
            text = f"learning rate jumped from {before:.3g} to {after:.3g}"
            found.append(_curve(case, panel, "lr-jump", text, cells, after - before))
        elif after < before / LR_JUMP:
            text = f"learning rate dropped from {before:.3g} to {after:.3g}"
            found.append(_curve(case, panel, "lr-drop", text, cells, after - before))
    return found[:2]

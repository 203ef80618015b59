"""One curve of a training, combined from all of its series, and the events in it."""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.panel import SeriesPanel
from ray_sentinel.diagnose.series import Bools, Floats

LOCAL = 61
"""Number of cells of the running median, which is the usual level at a moment."""


class Curve(Anomaly, frozen=True, kw_only=True):
    """An event in a training curve.

    Kinds: "loss-nan", "loss-overflow", "loss-diverged", "loss-setback", "loss-spike", "grad-spike",
    "grad-nan", "grad-overflow", "moe-shift", "lr-jump" and "lr-drop". What overflowed was not
    finite for a moment.
    """

    lasting: bool
    cells: Bools


def joint(case: JobCase, panel: SeriesPanel, q: float = 0.5) -> Floats:
    """(T,) one curve from all rows; a sample that is not finite in any of them stays so.

    What a restart has superseded is left out: its result was lost, and it is no level to compare
    with.
    """
    if panel.empty:
        return np.full(panel.times.size, np.nan)
    middle = stats.quantile(panel.values, q, axis=0)
    curve = np.where(np.isinf(panel.values).any(axis=0), np.inf, middle)
    return np.where(case.superseded, np.nan, curve)


def describe(case: JobCase, panel: SeriesPanel, kind: str, text: str, cells: Bools, size: float,
         at: float | None = None, lasting: bool = True) -> Curve:  # fmt: skip
    """The event in ``cells`` (T,), described with the step at which it began."""
    first = int(np.flatnonzero(cells)[0])
    moment = float(case.times[first]) if at is None else at
    step = case.line.step_at(moment)
    where = f" at step {step:.0f}" if step is not None else ""
    return Curve(
        kind=kind,
        text=text + where,
        at=moment,
        uncertainty=max(case.cell, case.line.step_seconds if case.line.trained else 0.0),
        size=size,
        metric=panel.metric,
        promql=panel.promql(),
        lasting=lasting,
        cells=cells,
    )


def broken(case: JobCase, panel: SeriesPanel, curve: Floats, name: str, title: str, last: int
           ) -> tuple[list[Curve], Floats]:  # fmt: skip
    """Where a curve is not finite, and the curve without that part.

    It is broken for good if its ``last`` known values are not finite. An occasional gradient
    overflow is what a loss scaler looks for, and a batch that was skipped breaks nothing.
    """
    off = np.isinf(curve)
    found = []
    known = np.flatnonzero(~np.isnan(curve))
    finite = stats.last_index(np.isfinite(curve))
    final = off & (np.arange(curve.size) > (-1 if finite is None else finite))
    if final.any() and final.sum() >= min(last, known.size):
        text = f"the {title} is NaN or infinite from here on,"
        found.append(describe(case, panel, f"{name}-nan", text, final, float("inf")))
        off = off & ~final
    if off.any():
        text = f"the {title} was NaN or infinite in {off.sum()} of {known.size} samples, first"
        found.append(describe(case, panel, f"{name}-overflow", text, off, float("inf"),
                          lasting=False))  # fmt: skip
    return found, stats.finite(curve)

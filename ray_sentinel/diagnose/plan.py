"""How many steps a job was planned to do, by its configuration, logs and series.

A plan in epochs becomes one in steps only if the number of steps in an epoch can be derived:

- Transformers writes the epoch as a fraction beside every value, e = s / n after s steps of n to an
  epoch (rounded to hundredths by older releases).
- Lightning writes the epoch that it is in, from 0 on: step s, counted from 0, lies in epoch e where
  e n <= s < (e + 1) n. So every pair bounds n from both sides.

Contradictory pairs (epochs from 1 on, a series of two runs) give no result. A bar's total counts
only where the bar's own step is that of the series: bars of evaluations, and of batches of which
several make a step, do not belong to the training.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.logs import Total
from ray_sentinel.diagnose.series import Floats, Selector

EPOCH_METRICS = ("tb_train_epoch", "tb_epoch", "tb_trainer_epoch")
ROUNDED = 0.0051
"""Largest error of an epoch number, which is rounded to hundredths."""
Judgement = Literal["done", "early", "unclear"]


class PlannedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Between ``least`` and ``most`` steps; ``text`` describes them, as in "All of the ..."."""

    least: float
    most: float
    text: str

    def judge(self, reached: float, rise: float) -> Judgement:
        """What the highest recorded step means for the plan, with ``rise`` steps from one to the
        next.

        Steps may be counted from 0, and the last one falls between two that are logged.
        """
        high = reached + 1 + rise
        if high > self.most:
            return "done"
        return "early" if high <= self.least else "unclear"


def plan_of(case: JobCase) -> PlannedSteps | None:
    """The job's plan; None if nothing shows it."""
    steps, epochs = case.logs.planned_steps, case.logs.planned_epochs
    if steps is not None:
        plan: PlannedSteps | None = _exact(steps)
    else:
        plan = _total(case)
    if epochs is None or (plan is not None and not case.logs.first_of_both):
        return plan
    by_epochs = _by_epochs(case, epochs)
    if plan is None or by_epochs is None:
        return plan or by_epochs
    return min(plan, by_epochs, key=lambda one: one.most)


def rise(case: JobCase) -> float:
    """Steps from one that is recorded to the next."""
    rises = np.diff(np.sort(np.unique(case.line.steps)))
    return float(np.median(rises)) if rises.size else 1.0


def _exact(steps: float) -> PlannedSteps:
    return PlannedSteps(least=steps, most=steps, text=f"{steps:.0f} planned steps")


def _total(case: JobCase) -> PlannedSteps | None:
    """What a trainer's saved state, or else a bar in the log, gives as its end."""
    slack = rise(case) + 1
    low, high = float(np.min(case.line.steps)), float(np.max(case.line.steps))
    for saved in (True, False):
        # A state was saved some time before the end; a bar moved up to it.
        first = low if saved else high
        ends = {
            one.total
            for one in case.logs.totals
            if one.saved == saved
            and not one.per_epoch
            and first - slack <= one.step <= high + slack
        }
        if len(ends) == 1:
            return _exact(ends.pop())
    return None


def _by_epochs(case: JobCase, epochs: float) -> PlannedSteps | None:
    found = _epoch_steps(case)
    if found is None:
        return None
    least, most, rounded = found
    for one in case.logs.totals:
        if one.per_epoch and least <= one.total <= most and _in_step(case, one):
            least = most = one.total
    # A partial batch at an epoch's end is a step of its own, or is dropped.
    slack = epochs if rounded else 0.0
    low, high = least * epochs - slack, most * epochs - slack
    told = f"{least * epochs:.0f}"
    if not np.isfinite(most):
        told = f"more than {told}"
    elif round(most * epochs) != round(least * epochs):
        told += f" to {most * epochs:.0f}"
    return PlannedSteps(least=low, most=high, text=f"{epochs:g} planned epochs ({told} steps)")


def _epoch_steps(case: JobCase) -> tuple[float, float, bool] | None:
    """The least and the most steps that an epoch can have, and whether epochs are fractions."""
    steps, epochs = _pairs(case)
    if epochs.size < 2:
        return None
    fractions = bool(np.any(np.abs(epochs - np.round(epochs)) > 1e-6))
    with np.errstate(divide="ignore", invalid="ignore"):
        if fractions:
            least = np.max(steps / (epochs + ROUNDED))
            most = np.min(np.where(epochs > 2 * ROUNDED, steps / (epochs - ROUNDED), np.inf))
        else:
            least = np.max((steps + 1) / (epochs + 1))
            most = np.min(np.where(epochs > 0, steps / epochs, np.inf))
    if not 1 <= least <= most:
        return None
    return float(least), float(most), fractions


def _pairs(case: JobCase) -> tuple[Floats, Floats]:
    """Steps, and the epochs that were written with them (N,)."""
    nothing = np.empty(0)
    source = case.view.source
    metric = next((name for name in EPOCH_METRICS if name in case.view.families), "")
    line = source.samples(Selector(case.line.metric), -np.inf, np.inf)
    epochs = source.samples(Selector(metric), -np.inf, np.inf) if metric else []
    if len(epochs) != 1 or not line:
        return nothing, nothing
    longest = max(line, key=lambda one: one.times.size)
    good = np.isfinite(epochs[0].values) & (epochs[0].values >= 0)
    times, values = epochs[0].times[good], epochs[0].values[good]
    if longest.times.size < 2 or not times.size:
        return nothing, nothing
    # The values are written one after the other: the step's own may come first or last.
    after = np.clip(np.searchsorted(longest.times, times), 1, longest.times.size - 1)
    nearer = times - longest.times[after - 1] < longest.times[after] - times
    return longest.values[np.where(nearer, after - 1, after)], values


def _in_step(case: JobCase, one: Total) -> bool:
    """Whether an epoch's bar is at the position of the last step, after some epochs."""
    last, slack = float(np.max(case.line.steps)), rise(case) + 1
    if one.total <= 0 or last < one.total or 4 * slack > one.total:
        return False
    off = (last - one.step) % one.total
    return min(off, one.total - off) <= slack

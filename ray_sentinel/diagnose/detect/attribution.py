"""What made the job slow: compares every disturbance with the times at which steps were slow.

A cause must be there when steps are slow, be gone (or at least not yet there) when they are not,
and begin no later than they do. Where several fit equally well, the earliest is the root; of those
that begin together the one whose mechanism is nearest to the steps. What was there long before the
steps grew slow fits worse than what came with them.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import candidates, pace
from ray_sentinel.diagnose.detect.candidates import LEAST_EFFECT, Candidate
from ray_sentinel.diagnose.series import Bools

LEAST_EXPLAINED = 0.5
"""Share of the slow time that a disturbance must cover to be taken as a cause."""
LEAST_PRECISION = 0.4
"""Share of a disturbance's own time in which steps must be slow for it to be taken as a cause."""
SLACK_SECONDS = 60.0
"""Seconds, beyond the uncertainty of both, by which a cause may be seen later than the slow
steps."""
AS_GOOD = 0.8
"""Share of the best fit that a candidate must reach: one that fits worse is not the root, however
early it began."""
TOGETHER_SECONDS = 90.0
"""Seconds; a candidate that begins within this time of the earliest one begins together with it."""


class Attribution(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that fits. Shares are 0..1."""

    candidate: Candidate
    effect: float
    """How much slower the steps are while the disturbance lasts, as a share."""
    explained: float
    """The share of the slow time that the disturbance covers."""
    precision: float
    """The share of the disturbance's own time in which steps were slow."""
    recovered: bool
    """Steps were fast again after the disturbance ended."""

    @property
    def overlap(self) -> float:
        """Overlap of its time with the slow time, as a share of their union (Jaccard index)."""
        return 1.0 / (1.0 / self.explained + 1.0 / self.precision - 1.0)


def find(case: JobCase) -> tuple[Attribution, ...]:
    """The candidates that fit, the root first; empty if nothing was slow or nothing fits."""
    tempo = case.once(pace.find)
    if not tempo.spells:
        return ()
    fits = [fit for fit in (_fit(case, one) for one in candidates.find(case)) if fit is not None]
    if not fits:
        return ()
    best = max(fit.overlap for fit in fits)
    good = [fit for fit in fits if fit.overlap >= AS_GOOD * best]
    earliest = min(fit.candidate.at for fit in good)
    together = [fit for fit in good if fit.candidate.at <= earliest + TOGETHER_SECONDS]
    root = max(together, key=lambda fit: fit.candidate.prior * (0.5 + fit.explained))
    rest = sorted((fit for fit in fits if fit is not root), key=lambda fit: fit.candidate.at)
    return (root, *rest)


def _fit(case: JobCase, candidate: Candidate) -> Attribution | None:
    tempo = case.once(pace.find)
    slow = tempo.cells(case.times) & case.steady
    cells = candidate.cells & case.steady
    if cells.sum() < 2 or not slow.any():
        return None
    effect = pace.effect(case, candidate.cells)
    explained = float((slow & cells).sum() / slow.sum())
    precision = float((slow & cells).sum() / cells.sum())
    if np.isnan(effect) or effect < LEAST_EFFECT or precision < LEAST_PRECISION:
        return None
    if explained < LEAST_EXPLAINED or not _in_time(case, candidate, tempo):
        return None
    return Attribution(
        candidate=candidate,
        effect=effect,
        explained=explained,
        precision=precision,
        recovered=_recovered(case, candidate.cells, tempo),
    )


def _in_time(case: JobCase, candidate: Candidate, tempo: pace.StepPace) -> bool:
    """Whether it began no later than some slow spell (each may have a cause of its own). Only time
    in which steps were seen counts: during a checkpoint neither is known.
    """
    doubt = 2 * case.cell + max(anomaly.uncertainty for anomaly in candidate.anomalies)
    for spell in tempo.spells:
        between = case.steady & (case.times > spell.start) & (case.times < candidate.at)
        late = float(between.sum()) * case.cell if candidate.at < spell.end else np.inf
        early = case.steady & (case.times > candidate.at) & (case.times < spell.start)
        slack = spell.uncertainty + doubt + SLACK_SECONDS
        if late <= slack and (spell is tempo.spells[0] or early.sum() * case.cell <= slack):
            return True
    return False


def _recovered(case: JobCase, cells: Bools, tempo: pace.StepPace) -> bool:
    last = np.flatnonzero(cells)[-1]
    after = case.steady & (np.arange(cells.size) > last) & np.isfinite(tempo.relative)
    return bool(after.sum() >= 3 and np.median(tempo.relative[after]) < 1.0 + pace.SLOWER)

"""GPUs that differ from all others throughout the job."""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase

LEAST_CARDS = 6
"""Fewer do not tell what is usual among them."""
STRENGTH = 6.0
"""So many times the cards' own spread (sigma) is too far."""


def outliers(case: JobCase, key: str, *, least: float) -> tuple[Anomaly, ...]:
    """GPUs whose middle value lies ``least`` (in the quantity's unit) and far from the others'."""
    panel = case.view.panel(key)
    if len(panel.rows) < LEAST_CARDS or case.steady.sum() < 8:
        return ()
    levels = stats.median(np.where(case.steady, panel.values, np.nan), axis=1)
    usual, noise = stats.middle(levels), float(stats.sigma(levels))
    return tuple(
        Anomaly(
            kind=f"outlier.{key}",
            text=f"GPU {row.gpu} of {row.host}: {panel.quantity.title} {level:.0f} "
            f"{panel.quantity.unit} throughout, where the others have {usual:.0f}",
            at=case.line.start,
            until=case.line.end,
            uncertainty=case.cell,
            host=row.host,
            gpu=row.gpu,
            size=float(level - usual),
            metric=panel.metric,
            promql=panel.promql(row),
        )
        for row, level in zip(panel.rows, levels, strict=True)
        if np.isfinite(level) and abs(level - usual) >= max(least, STRENGTH * noise)
    )

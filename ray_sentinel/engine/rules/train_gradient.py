"""train.gradient: the gradient norm leaps far above what it was."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.engine.scalars import median_before, named
from ray_sentinel.model.alert import Alert


class TrainGradientThresholds(Thresholds, frozen=True, kw_only=True):
    """``factor`` times the median of what was before."""

    factor: float = 10.0


class TrainGradient(AlertRule):
    """Mostly what comes before a diverging loss. Reads scalars with "grad" in their name."""

    name = "train.gradient"
    Thresholds = TrainGradientThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for job, rank, name, track in named(view, "grad"):
            usual = median_before(track, 1)
            if usual and track.values[-1] > self.thresholds.factor * usual:
                text = f"{name} of rank {rank} is {track.values[-1]:.4g}, it was {usual:.4g}"
                yield Alert(rule=self.name, severity="warning", job=job.job, text=text)

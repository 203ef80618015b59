"""train.loss: the loss is no number any more, or far above what it was."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.engine.scalars import median_before, named
from ray_sentinel.model.alert import Alert


class TrainLossThresholds(Thresholds, frozen=True, kw_only=True):
    """``factor`` times the median before, over ``looks`` in a row; ``above`` it at least."""

    factor: float = 2.0
    above: float = 1.0
    looks: int = 6


class TrainLoss(AlertRule):
    """Reads the scalars that ranks pass to ``step()`` under a name with "loss" in it."""

    name = "train.loss"
    Thresholds = TrainLossThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for job, rank, name, track in named(view, "loss", but=("lb_loss", "aux", "balance")):
            if track.lost_for(now) > 30.0 and job.silence(now) < 30.0:
                text = f"{name} of rank {rank} is no number any more"
                yield Alert(rule=self.name, severity="critical", job=job.job, text=text)
                continue
            usual = median_before(track, limits.looks)
            recent = track.values[-limits.looks :]
            if usual is None or len(recent) < limits.looks:
                continue
            if min(recent) > max(limits.factor * usual, usual + limits.above):
                text = f"{name} of rank {rank} is at {recent[-1]:.4g}, it was {usual:.4g}"
                yield Alert(rule=self.name, severity="warning", job=job.job, text=text)

"""train.moe_balance: the load of a mixture's experts drifts apart."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.engine.scalars import median_before, named
from ray_sentinel.model.alert import Alert


class TrainMoeBalanceThresholds(Thresholds, frozen=True, kw_only=True):
    """``factor`` times the median before, over ``looks`` in a row."""

    factor: float = 2.0
    looks: int = 6


class TrainMoeBalance(AlertRule):
    """Reads scalars with "moe" and "lb_loss" or "balance" in their name; higher is worse."""

    name = "train.moe_balance"
    Thresholds = TrainMoeBalanceThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for job, rank, name, track in named(view, "moe"):
            if "lb_loss" not in name.lower() and "balance" not in name.lower():
                continue
            usual = median_before(track, limits.looks)
            recent = track.values[-limits.looks :]
            if usual and len(recent) == limits.looks and min(recent) > limits.factor * usual:
                text = f"{name} of rank {rank} is at {recent[-1]:.4g}, it was {usual:.4g}"
                yield Alert(rule=self.name, severity="warning", job=job.job, text=text)

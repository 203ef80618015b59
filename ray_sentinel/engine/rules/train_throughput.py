"""train.throughput: steps take longer than they used to, outside of saves and evaluations."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert


class TrainThroughputThresholds(Thresholds, frozen=True, kw_only=True):
    """``ratio`` of the best median that was learned, in ``looks`` in a row, five seconds apart."""

    ratio: float = 1.1
    looks: int = 12


class TrainThroughput(AlertRule):
    """Compares the median of the last steps with the best that the job has kept up."""

    name = "train.throughput"
    Thresholds = TrainThroughputThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for job in view.jobs.values():
            track = view.scalars.steps.get(job.key)
            if track is None or job.protected_phase(now) or track.best is None:
                continue
            recent = track.values[-self.thresholds.looks :]
            limit = self.thresholds.ratio * track.best
            if len(recent) == self.thresholds.looks and min(recent) > limit:
                slower = 100.0 * (recent[-1] / track.best - 1.0)
                yield Alert(
                    rule=self.name,
                    severity="warning",
                    kind="slow",
                    job=job.job,
                    text=f"steps take {recent[-1]:.2f} s, {slower:.0f} % more than at best",
                )

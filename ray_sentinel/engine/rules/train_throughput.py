"""train.throughput: steps take longer than they used to, outside of saves and evaluations."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import JobAlertRule
from ray_sentinel.model.alert import Alert


class TrainThroughput(JobAlertRule):
    """Compares the median of the last steps with the best median that the job has sustained.

    Thresholds: ``ratio`` of the best median that was learned, in ``looks`` in a row, five seconds
    apart.
    """

    name = "train.throughput"
    Thresholds = thresholds(ratio=1.1, looks=12)

    def find_alerts(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for job in view.jobs.values():
            track = view.scalars.steps.get(job.key)
            if track is None or job.protected_phase(now) or track.best is None:
                continue
            recent = track.values[-self.thresholds.looks :]
            limit = self.thresholds.ratio * track.best
            if len(recent) == self.thresholds.looks and min(recent) > limit:
                slower = 100.0 * (recent[-1] / track.best - 1.0)
                yield self.alert(
                    kind="slow",
                    job=job.job,
                    text=f"steps take {recent[-1]:.2f} s, {slower:.0f} % more than at their best",
                )

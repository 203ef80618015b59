"""train.checkpoint_overdue: the job has not saved for far longer than it used to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import JobAlertRule
from ray_sentinel.model.alert import Alert


class TrainCheckpointOverdue(JobAlertRule):
    """Every step since the last one is lost if the job fails now.

    Thresholds: ``factor`` times the longest of the last intervals between declared checkpoints.
    """

    name = "train.checkpoint_overdue"
    Thresholds = thresholds(factor=2.0)

    def find_alerts(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for job in view.jobs.values():
            saves = view.scalars.saves.get(job.key)
            if saves is None or len(saves) < 3 or not job.at_work(now):
                continue
            gaps = [later - earlier for earlier, later in pairwise(saves)]
            if now - saves[-1] > self.thresholds.factor * max(gaps):
                yield self.alert(
                    job=job.job,
                    text=f"the last checkpoint was {now - saves[-1]:.0f} s ago; so far they were "
                    f"at most {max(gaps):.0f} s apart",
                )

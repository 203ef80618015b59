"""serve.stalled: a Ray Serve deployment has requests, and none of them ends."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import JobAlertRule
from ray_sentinel.engine.telemetry.inference import loads
from ray_sentinel.evidence.server_load import SERVE
from ray_sentinel.model.alert import Alert


class ServeStalled(JobAlertRule):
    """Replicas of a deployment serve independently: nobody waits for a rank, so no case is opened.

    Thresholds: ``seconds`` in which no request came, ended, or moved on from the queue.
    """

    name = "serve.stalled"
    Thresholds = thresholds(seconds=300.0)

    def find_alerts(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for job, load in loads(view, now).items():
            still = load.still_seconds >= self.thresholds.seconds
            if job.startswith(SERVE) and load.requests and still:
                yield self.alert(
                    kind="stall",
                    job=job,
                    text=f"{load}, and no request has made progress for {load.still_seconds:.0f} s",
                )

"""Rules on inference engines and deployments whose requests do not move."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Rule, thresholds
from ray_sentinel.engine.telemetry.alert_rules import JobAlertRule
from ray_sentinel.engine.telemetry.inference import loads
from ray_sentinel.evidence.server_load import SERVE
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.incident import EvidenceItem, Finding


class StallRequests(Rule):
    """An inference engine has requests, and none of its counters changes.

    A suspicion: stacks show whether a rank is stuck, or nobody passes the requests on.

    Thresholds: ``seconds`` for which requests run or wait while nothing is counted.
    """

    name = "stall.requests"
    Thresholds = thresholds(seconds=60.0)

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        told = loads(view, now)
        for job in view.jobs.values() if told else ():
            load = told.get(job.job)
            if load is None or not job.live or not load.requests:
                continue
            if load.still_seconds >= self.thresholds.seconds:
                still = f"{load}, and no request has made progress for {load.still_seconds:.0f} s"
                yield Finding(
                    rule=self.name,
                    job=job.job,
                    attempt=job.attempt,
                    kind="stall",
                    severity="critical",
                    summary=f"{job.job}: {still}",
                    evidence=(EvidenceItem(source="server", text=still),),
                )


class ServeStalled(JobAlertRule):
    """A Ray Serve deployment has requests, and none of them ends.

    Replicas of a deployment serve independently: nobody waits for a rank, so no case is opened.

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

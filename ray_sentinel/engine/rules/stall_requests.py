"""stall.requests: an inference engine has requests, and none of its counters changes."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Rule, thresholds
from ray_sentinel.engine.telemetry.inference import loads
from ray_sentinel.model.incident import EvidenceItem, Finding


class StallRequests(Rule):
    """A suspicion: stacks show whether a rank is stuck, or nobody passes the requests on.

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

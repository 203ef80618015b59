"""net.tcp_retransmit: TCP sends much again. Never to blame for the throughput of collectives."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.counters import Rise, rises
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert

METRICS = (("hw_tcp_retransmits_total", "TCP retransmits"),)
LINGER = 30.0
"""Seconds after a save in which its writes may still be on their way."""


class NetTcpRetransmitThresholds(Thresholds, frozen=True, kw_only=True):
    """``least`` segments within ``seconds``, and ``factor`` times the usual rate; not while a job
    on the host saves or evaluates."""

    seconds: float = 60.0
    least: float = 60000.0
    factor: float = 20.0


class NetTcpRetransmit(AlertRule):
    """It carries control traffic and storage: shown for what it is, and explains no slow step."""

    name = "net.tcp_retransmit"
    Thresholds = NetTcpRetransmitThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for found in rises(view, METRICS, now, limits.seconds):
            much = found.rate >= limits.factor * max(found.usual, 1.0)
            if found.count >= limits.least and much and not self._saved(view, found, now):
                text = f"{found.rate:.0f} {found.name} a second, usual {found.usual:.0f}"
                yield found.alert(self.name, "info", "unknown", text)

    def _saved(self, view: ClusterView, found: Rise, now: float) -> bool:
        """A job with ranks on the host writes to storage, or has just done so."""
        return any(
            view.scalars.apart_lately(job, now, self.thresholds.seconds + LINGER)
            for job in view.jobs.values()
            if any(rank.node == found.node for rank in job.live)
        )

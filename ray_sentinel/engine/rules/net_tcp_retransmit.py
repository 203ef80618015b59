"""net.tcp_retransmit: TCP sends much again. Never to blame for the throughput of collectives."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.counters import rises
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert

METRICS = (("hw_tcp_retransmits_total", "TCP retransmits"),)


class NetTcpRetransmitThresholds(Thresholds, frozen=True, kw_only=True):
    """``least`` segments within ``seconds``, and ``factor`` times the usual rate."""

    seconds: float = 60.0
    least: float = 60000.0
    factor: float = 20.0


class NetTcpRetransmit(AlertRule):
    """Checkpoints make bursts of them; they are shown, and explain nothing."""

    name = "net.tcp_retransmit"
    Thresholds = NetTcpRetransmitThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for found in rises(view, METRICS, now, limits.seconds):
            if found.count >= limits.least and found.rate >= limits.factor * max(found.usual, 1.0):
                yield found.alert(
                    self.name,
                    "info",
                    "unknown",
                    f"{found.rate:.0f} {found.name} a second, usual {found.usual:.0f}",
                )

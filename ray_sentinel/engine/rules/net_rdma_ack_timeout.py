"""net.rdma_ack_timeout: the other end of a port's connections does not answer in time."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.counters import rises
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert

METRICS = (("hw_rdma_tx_ack_timeout_total", "ACK time-outs"),)


class NetRdmaAckTimeoutThresholds(Thresholds, frozen=True, kw_only=True):
    """``least`` time-outs within ``seconds``."""

    seconds: float = 60.0
    least: float = 5.0


class NetRdmaAckTimeout(AlertRule):
    """Packets are lost, or a peer is gone."""

    name = "net.rdma_ack_timeout"
    Thresholds = NetRdmaAckTimeoutThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for found in rises(view, METRICS, now, limits.seconds):
            if found.count >= limits.least:
                yield found.alert(
                    self.name,
                    "warning",
                    "network",
                    f"{found.count:.0f} {found.name} within {limits.seconds:.0f} s",
                )

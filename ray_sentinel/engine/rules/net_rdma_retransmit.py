"""net.rdma_retransmit: a port sends packets again far more often than it used to."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.counters import rises
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert

METRICS = (("hw_rdma_tx_retx_pkts_total", "retransmitted packets"),)


class NetRdmaRetransmitThresholds(Thresholds, frozen=True, kw_only=True):
    """``least`` packets within ``seconds``, and ``factor`` times the usual rate."""

    seconds: float = 60.0
    least: float = 1000.0
    factor: float = 10.0


class NetRdmaRetransmit(AlertRule):
    """A bad cable or transceiver, or a congested path."""

    name = "net.rdma_retransmit"
    Thresholds = NetRdmaRetransmitThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for found in rises(view, METRICS, now, limits.seconds):
            if found.count >= limits.least and found.rate >= limits.factor * found.usual:
                yield found.alert(
                    self.name,
                    "warning",
                    "slow",
                    f"{found.rate:.0f} {found.name} a second, usual {found.usual:.1f}",
                )

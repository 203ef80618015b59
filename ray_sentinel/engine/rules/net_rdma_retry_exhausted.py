"""net.rdma_retry_exhausted: a port has given up sending: its connections are broken."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.counters import rises
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert

METRICS = (("hw_rdma_req_tx_retry_excd_err_total", "sends given up after all retries"),)


class NetRdmaRetryExhaustedThresholds(Thresholds, frozen=True, kw_only=True):
    """``least`` within ``seconds``."""

    seconds: float = 300.0
    least: float = 1.0


class NetRdmaRetryExhausted(AlertRule):
    """The collective library ends with an error, or hangs."""

    name = "net.rdma_retry_exhausted"
    Thresholds = NetRdmaRetryExhaustedThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for found in rises(view, METRICS, now, limits.seconds):
            if found.count >= limits.least:
                yield found.alert(
                    self.name, "critical", "network", f"{found.count:.0f} {found.name}"
                )

"""net.port_down: an RDMA port that was up has gone down."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.engine.telemetry.series import TelemetrySeries
from ray_sentinel.model.alert import Alert


class NetPortDown(NodeAlertRule):
    """A port that was never up is not cabled, by design.

    Thresholds: ``samples`` in a row that show it down.
    """

    name = "net.port_down"
    Thresholds = thresholds(samples=2)

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        for node, telemetry in part.nodes:
            for labels, series in telemetry.get("hw_rdma_port_state", part.now):
                since = self._down_since(series)
                if since is not None:
                    port = f"{labels.get('device', '')}/{labels.get('port', '')}".strip("/")
                    yield self.alert(
                        severity="critical",
                        kind="network",
                        host=node.node.host,
                        port=port,
                        text="the port has gone down",
                        since=since,
                    )

    def _down_since(self, series: TelemetrySeries) -> float | None:
        """When it went down; None if it is up, or never was."""
        since, count = None, 0
        for at, value in series.newest_first():
            if value >= 1:
                return since if count >= self.thresholds.samples else None
            since, count = at, count + 1
        return None

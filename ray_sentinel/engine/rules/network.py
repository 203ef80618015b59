"""Rules on the network that a training uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.engine.telemetry.series import TelemetrySeries
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import RDMA_UNUSED, SOCKETS_USED


class NetPortDown(NodeAlertRule):
    """An RDMA port that was up has gone down.

    A port that was never up is not cabled, by design.

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


PORTS = "hw_rdma_port_state"
TRAFFIC = "hw_rdma_tx_bytes_total"


class TrainTransport(NodeAlertRule):
    """The collective library talks over TCP sockets on a host with RDMA ports.

    A device that is there and up does not mean that it is used (NET/Socket in NCCL's log).

    Thresholds: Within ``seconds`` of training, less than ``bytes`` over RDMA and more than
    ``tcp_bytes`` over the network devices.
    """

    name = "train.transport"
    Thresholds = thresholds(
        seconds=RDMA_UNUSED.seconds, bytes=RDMA_UNUSED.limit, tcp_bytes=SOCKETS_USED.limit
    )

    def jobs(self, view: ClusterView, at_work: Sequence[JobView], now: float) -> Iterator[JobView]:
        for job in view.jobs.values():
            if job.training() and job.silence(now) < job.timeout():
                yield job

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        limits, now = self.thresholds, part.now
        for node, telemetry in part.nodes:
            if not any(node.node.id in job.live_nodes for job in part.jobs_of(self.name)):
                continue
            up = any(series.last >= 1 for _, series in telemetry.get(PORTS, now))
            rdma = [s for _, s in telemetry.get(TRAFFIC, now) if s.covers(now, limits.seconds)]
            tcp = [s for _, s in telemetry.get("hw_net_tx_bytes_total", now)]
            over_rdma = sum(series.rise(now, limits.seconds) for series in rdma)
            over_tcp = sum(series.rise(now, limits.seconds) for series in tcp)
            if up and rdma and over_rdma < limits.bytes and over_tcp > limits.tcp_bytes:
                yield self.alert(
                    kind="slow",
                    host=node.node.host,
                    text=f"{over_tcp / 1e9:.0f} GB went over sockets in {limits.seconds:.0f} "
                    "s, and nothing over the RDMA ports that are up",
                )

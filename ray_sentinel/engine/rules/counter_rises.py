"""Rules on counters of devices and hosts that rise: errors, OOM kills, retransmitted packets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.incident import FaultKind, Severity
from ray_sentinel.model.thresholds import (
    GPU_PCIE_FATAL,
    GPU_PCIE_NONFATAL,
    GPU_UNCORRECTED,
    NVLINK_KINDS,
    NVLINK_RECOVERIES,
    NVLINK_REPLAYS,
    OOM_KILLS,
    RDMA_ACK_TIMEOUTS,
    RDMA_CONGESTION,
    RDMA_RETRANSMITS,
    RDMA_RETRIES_EXCEEDED,
    TCP_RETRANSMITS,
)

LINGER = 30.0
"""Seconds after a save in which its writes may still be on their way."""


class Rise(msgspec.Struct, frozen=True, kw_only=True):
    """How much one counter of one device rose over a window."""

    node: str
    host: str
    gpu: str
    port: str
    metric: str
    name: str
    """What is counted, in words."""
    kind: str
    """The value of the counter's label ``kind``; empty where it has none."""
    count: float
    """By how much it rose within the window."""
    rate: float
    """By how much it rose per second within the window."""
    usual: float
    """By how much it rose per second before the window; 0 where that is not known."""
    since: float


class RiseRule(NodeAlertRule):
    """Warns about each counter that rose by ``least`` within ``seconds`` (its thresholds)."""

    severity: ClassVar[Severity]
    kind: ClassVar[FaultKind]
    metrics: ClassVar[tuple[tuple[str, str], ...]]
    """Names of counters, each with what it counts, in words."""
    text: ClassVar[str]
    """The text of the alert, with ``{rise}`` and ``{limits}``."""

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        for rise in self.rises(part, self.thresholds.seconds, self.thresholds.least):
            if self.unusual(part.view, rise, part.now):
                yield self.alert_about(rise)

    def alert_about(self, rise: Rise) -> Alert:
        """The alert about a rise."""
        return self.alert(
            self.text.format(rise=rise, limits=self.thresholds),
            severity=self.severity_of(rise),
            kind=self.kind,
            host=rise.host,
            gpu=rise.gpu,
            port=rise.port,
            since=rise.since,
        )

    def severity_of(self, rise: Rise) -> Severity:
        """The severity of a rise; that of the rule unless its counters differ."""
        return self.severity

    def unusual(self, view: ClusterView, rise: Rise, now: float) -> bool:
        """Whether a rise of ``least`` or more deserves an alert."""
        return True

    def rises(self, part: WatchedPart, seconds: float, least: float) -> Iterator[Rise]:
        """Every counter of these nodes that rose by ``least`` within ``seconds``. What it had
        counted before it was first seen (since boot) is not a rise."""
        now = part.now
        for node, telemetry in part.nodes:
            for metric, words in self.metrics:
                for labels, series in telemetry.get(metric, now):
                    count = series.rise(now, seconds)
                    if count <= 0 or count < least:
                        continue
                    device, port = labels.get("device", ""), labels.get("port", "")
                    yield Rise(
                        node=node.node.id,
                        host=node.node.host,
                        gpu=labels.get("gpu", ""),
                        port=f"{device}/{port}" if port else device,
                        metric=metric,
                        name=words,
                        kind=labels.get("kind", ""),
                        count=count,
                        rate=count / seconds,
                        usual=series.usual_rate(now, seconds) or 0.0,
                        since=series.rose_at(now, seconds) or now,
                    )


class GpuMemoryErrors(RiseRule):
    """Uncorrectable memory errors (ECC, RAS) kill the process that used the memory, or corrupt its
    results."""

    name = "gpu.memory_errors"
    severity = "critical"
    kind = "device-stuck"
    metrics = (
        ("hw_gpu_ecc_uncorrected_total", "uncorrectable ECC errors"),
        ("hw_gpu_ras_umc_ue_total", "uncorrectable errors (umc)"),
        ("hw_gpu_ras_xgmi_ue_total", "uncorrectable errors (xgmi)"),
        ("hw_gpu_ras_gfx_ue_total", "uncorrectable errors (gfx)"),
        ("hw_gpu_ras_mmhub_ue_total", "uncorrectable errors (mmhub)"),
        ("hw_gpu_ras_sdma_ue_total", "uncorrectable errors (sdma)"),
    )
    Thresholds = thresholds(seconds=GPU_UNCORRECTED.seconds, least=GPU_UNCORRECTED.limit)
    text = "{rise.count:.0f} new {rise.name}"


class GpuNvlink(RiseRule):
    """A link between GPUs that replays packets is slow, and may go down.

    Errors after which it recovers, or that lose data, have thresholds of their own.
    """

    name = "gpu.nvlink"
    severity = "warning"
    kind = "slow"
    metrics = (
        ("hw_gpu_nvlink_errors_total", "NVLink errors"),
        ("hw_gpu_ras_xgmi_ce_total", "correctable XGMI errors"),
    )
    Thresholds = thresholds(
        seconds=NVLINK_REPLAYS.seconds,
        least=NVLINK_REPLAYS.limit,
        recovery_seconds=NVLINK_RECOVERIES.seconds,
        least_recoveries=NVLINK_RECOVERIES.limit,
    )
    text = "{rise.count:.0f} new {rise.name} {rise.kind}"

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        limits = self.thresholds
        for seconds, least, recoveries in (
            (limits.seconds, limits.least, False),
            (limits.recovery_seconds, limits.least_recoveries, True),
        ):
            for rise in self.rises(part, seconds, least):
                if (rise.kind in NVLINK_KINDS) is recoveries:
                    yield self.alert_about(rise)


class GpuPcieErrors(RiseRule):
    """Correctable errors (AER) of a GPU's PCIe link are common; the ones counted here are not."""

    name = "gpu.pcie_errors"
    severity = "warning"
    kind = "device-stuck"
    metrics = (
        ("hw_gpu_pcie_fatal_total", "fatal PCIe errors"),
        ("hw_gpu_pcie_nonfatal_total", "non-fatal PCIe errors"),
    )
    Thresholds = thresholds(seconds=GPU_PCIE_NONFATAL.seconds, least=GPU_PCIE_NONFATAL.limit)
    text = "{rise.count:.0f} new {rise.name}"

    def severity_of(self, rise: Rise) -> Severity:
        fatal = rise.metric in GPU_PCIE_FATAL.families
        return GPU_PCIE_FATAL.severity if fatal else self.severity


class HostOomKill(RiseRule):
    """If the kernel killed a rank, its exit shows that; if it killed a dataloader worker, the rank
    waits for it."""

    name = "host.oom_kill"
    severity = "critical"
    kind = "oom-killed"
    metrics = (
        ("hw_oom_kills_total", "OOM kills"),
        ("hw_cgroup_oom_kills_total", "OOM kills in the container"),
    )
    Thresholds = thresholds(seconds=OOM_KILLS.seconds, least=OOM_KILLS.limit)
    text = "{rise.count:.0f} {rise.name}"


class NetRdmaRetryExhausted(RiseRule):
    """RDMA gave up sending: the collective library ends with an error, or hangs."""

    name = "net.rdma_retry_exhausted"
    severity = "critical"
    kind = "network"
    metrics = (("hw_rdma_req_tx_retry_excd_err_total", "sends given up after all retries"),)
    Thresholds = thresholds(
        seconds=RDMA_RETRIES_EXCEEDED.seconds, least=RDMA_RETRIES_EXCEEDED.limit
    )
    text = "{rise.count:.0f} {rise.name}"


class NetRdmaAckTimeout(RiseRule):
    """RDMA acknowledgements time out: packets are lost, or a peer is gone."""

    name = "net.rdma_ack_timeout"
    severity = "warning"
    kind = "network"
    metrics = (("hw_rdma_tx_ack_timeout_total", "ACK time-outs"),)
    Thresholds = thresholds(seconds=RDMA_ACK_TIMEOUTS.seconds, least=RDMA_ACK_TIMEOUTS.limit)
    text = "{rise.count:.0f} {rise.name} within {limits.seconds:.0f} s"


class NetRdmaRetransmit(RiseRule):
    """RDMA retransmits a lot: a cable or transceiver is bad, or the path is congested."""

    name = "net.rdma_retransmit"
    severity = "warning"
    kind = "slow"
    metrics = (("hw_rdma_tx_retx_pkts_total", "retransmitted packets"),)
    Thresholds = thresholds(
        seconds=RDMA_RETRANSMITS.seconds, least=RDMA_RETRANSMITS.limit, factor=10.0
    )
    text = "{rise.rate:.0f} {rise.name} per second, usually {rise.usual:.1f}"

    def unusual(self, view: ClusterView, rise: Rise, now: float) -> bool:
        return bool(rise.rate >= self.thresholds.factor * rise.usual)


class NetRdmaCongestion(RiseRule):
    """Other traffic shares the path. Congestion control doing its work is not a fault."""

    name = "net.rdma_congestion"
    severity = "info"
    kind = "unknown"
    metrics = (("hw_rdma_rx_cnp_pkts_total", "congestion notifications"),)
    Thresholds = thresholds(
        seconds=RDMA_CONGESTION.seconds, least=RDMA_CONGESTION.limit, factor=20.0
    )
    text = "{rise.rate:.0f} {rise.name} per second, usually {rise.usual:.0f}"

    def unusual(self, view: ClusterView, rise: Rise, now: float) -> bool:
        return bool(rise.rate >= self.thresholds.factor * max(rise.usual, 1.0))


class NetTcpRetransmit(NetRdmaCongestion):
    """TCP carries control traffic and storage, so it explains no slow step. Silent while a job on
    the host saves or evaluates."""

    name = "net.tcp_retransmit"
    metrics = (("hw_tcp_retransmits_total", "TCP retransmits"),)
    Thresholds = thresholds(
        seconds=TCP_RETRANSMITS.seconds, least=TCP_RETRANSMITS.limit, factor=20.0
    )

    def unusual(self, view: ClusterView, rise: Rise, now: float) -> bool:
        return super().unusual(view, rise, now) and not any(
            view.scalars.apart_lately(job, now, self.thresholds.seconds + LINGER)
            for job in view.jobs.values()
            if rise.node in job.live_nodes
        )

"""Compares every source of contention in both jobs, host by host.

Two jobs may have run on different hosts. So a host of the second is compared with what is usual
among the hosts of the first, and stands out if it exceeds their own differences.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase, everywhere
from ray_sentinel.diagnose.common_steps import inside
from ray_sentinel.diagnose.detect.pressure import ALIKE
from ray_sentinel.diagnose.panel import SeriesOwner, listed
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.model.thresholds import (
    GPU_CORRECTED_OVER_PEERS,
    GPU_PCIE_NONFATAL,
    GPU_PCIE_REPLAYS,
    GPU_UNCORRECTED,
    RDMA_LINK_DOWNS,
)

APART = 4.0
"""How far a host must be from what is usual: this many robust standard deviations of the first
job's hosts."""
SHARE = 0.25
"""Share of the usual level; a smaller difference is not reported."""


class SweepRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the sweep."""

    key: str
    title: str
    cause: str
    """What a difference points to, for people."""
    domain: str = ""
    """The domain: "rdma", "cpu", "storage", "tcp", "nic", "thermal", "hardware", "memory" or
    "training"; empty for what only follows from something else."""
    least: float = 0.0
    """In the quantity's unit (per second for counters): a smaller difference between two jobs names
    nobody, whatever the levels."""
    worse: float = 1.0
    """The direction in which the quantity is worse: 1 where more is worse, -1 where less is."""
    total: bool = False
    """The counter is compared by how much it grew over the common steps, not by its rate."""


def _errors(key: str, title: str, least: float = GPU_CORRECTED_OVER_PEERS.limit) -> SweepRow:
    """Errors of a part: as many more as a healthy one does not count."""
    cause = "a degrading or failing part: have it tested"
    return SweepRow(key=key, title=title, cause=cause, domain="hardware", least=least, total=True)


SWEEP = (
    SweepRow(key="train.throughput", title="throughput", cause="the effect", worse=-1.0),
    SweepRow(key="train.step_time", title="step time", cause="the effect"),
    SweepRow(key="rdma.retx", title="RDMA retransmits", domain="rdma", least=1.0,
            cause="a bad cable, port or switch slows every collective"),
    SweepRow(key="rdma.ack_timeout", title="RDMA ACK timeouts", domain="rdma", least=0.01,
            cause="a bad link or switch"),
    SweepRow(key="rdma.retry_exceeded", title="RDMA retry exhaustion", domain="rdma", least=1.0,
            cause="packets are lost for good: a hard link failure", total=True),
    SweepRow(key="rdma.link_downed", title="RDMA link downs", domain="hardware", total=True,
            least=RDMA_LINK_DOWNS.limit, cause="a cable, a transceiver or a switch port"),
    SweepRow(key="rdma.cnp", title="congestion notifications", domain="rdma", least=10.0,
            cause="a congested fabric"),
    SweepRow(key="host.procs_running", title="runnable threads", domain="cpu", least=5.0,
            cause="other load, or threads that were left behind, compete for the CPUs"),
    SweepRow(key="host.context_switches", title="context switches", cause="follows the CPU load"),
    SweepRow(key="host.procs_blocked", title="blocked processes", domain="storage", least=3.0,
            cause="they wait for storage"),
    SweepRow(key="io.full", title="I/O pressure", domain="storage", least=5.0,
            cause="storage is slower or busier"),
    SweepRow(key="io.dirty", title="dirty pages", domain="storage", least=4e9,
            cause="storage does not take what is written"),
    SweepRow(key="io.writeback", title="pages under writeback", domain="storage", least=4e9,
            cause="storage does not take what is written"),
    SweepRow(key="tcp.retx", title="TCP retransmits", domain="tcp", least=10.0,
            cause="storage and control traffic; not the collectives' path where there is RDMA"),
    SweepRow(key="tcp.resets", title="TCP resets", domain="tcp", least=1.0,
            cause="connections of storage or control traffic break"),
    SweepRow(key="tcp.aborts", title="TCP aborts on timeout", domain="tcp", least=1.0, total=True,
            cause="a peer of storage or control traffic does not answer"),
    SweepRow(key="net.rx_errors", title="NIC receive errors", domain="nic", least=0.2,
            cause="a bad network card or cable"),
    SweepRow(key="net.tx_errors", title="NIC transmit errors", domain="nic", least=0.2,
            cause="a bad network card or cable"),
    SweepRow(key="mem.used", title="host memory", domain="memory", least=1e11,
            cause="slows nothing before it runs out"),
    SweepRow(key="mem.oom", title="OOM kills", domain="memory", least=1.0, total=True,
            cause="processes were killed for lack of memory"),
    SweepRow(key="gpu.temp", title="GPU temperature", domain="thermal", least=6.0,
            cause="cooling"),
    SweepRow(key="gpu.clock", title="GPU core clock", domain="thermal", least=80.0, worse=-1.0,
            cause="heat or a power cap holds the clock down"),
    SweepRow(key="gpu.power", title="GPU power", cause="follows the work that is done"),
    _errors("err.ras_umc_ue", "uncorrectable GPU memory errors", GPU_UNCORRECTED.limit),
    _errors("err.ras_umc_ce", "correctable GPU memory errors"),
    _errors("err.ecc_ue", "uncorrectable ECC errors", GPU_UNCORRECTED.limit),
    _errors("err.ecc_ce", "correctable ECC errors"),
    _errors("err.ras_xgmi_ce", "correctable GPU link errors"),
    _errors("err.pcie_fatal", "fatal PCIe errors", GPU_UNCORRECTED.limit),
    _errors("err.pcie_ce", "correctable PCIe errors"),
    _errors("err.pcie_nonfatal", "non-fatal PCIe errors", GPU_PCIE_NONFATAL.limit),
    _errors("err.pcie_replay", "PCIe replays", GPU_PCIE_REPLAYS.limit),
    _errors("err.nvlink", "NVLink errors"),
    _errors("err.remapped", "remapped memory rows", 1.0),
    _errors("err.xid", "Xid errors", 1.0),
    _errors("err.dmesg_gpu", "GPU errors in the kernel log", 1.0),
    SweepRow(key="train.moe", title="MoE load-balance loss", domain="training",
            cause="experts are loaded unevenly"),
    SweepRow(key="train.loss", title="loss", cause="the model, its data or its settings"),
    SweepRow(key="train.grad_norm", title="gradient norm",
            cause="the model, its data or its settings"),
)  # fmt: skip


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts, GPUs or ports of the second job that stand out in one measure."""

    measure: SweepRow
    rows: tuple[SeriesOwner, ...]
    """The hosts, GPUs or ports that stand out, the worst first."""
    everywhere: bool
    """Nearly all hosts stand out."""
    rise: float
    """How far the worst is from what is usual in the first job, in the quantity's unit."""
    unit: str

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts concerned; empty if all are."""
        return () if self.everywhere else tuple(dict.fromkeys(row.host for row in self.rows))

    @property
    def text(self) -> str:
        """Which hosts have how much more, for people."""
        how = "less" if self.measure.worse < 0 else "more"
        size = abs(self.rise)
        amount = f"{size:,.0f}" if size >= 10 else f"{size:.2g}"
        amount = f"{amount} {self.unit}".strip()
        if self.everywhere:
            return f"all hosts have {amount} {how} {self.measure.title}"
        names = listed([_named(row) for row in self.rows], 4)
        return f"{names} {'has' if len(self.rows) == 1 else 'have'} {amount} {how} " + (
            self.measure.title
        )


def _named(row: SeriesOwner) -> str:
    if row.unit:
        return f"{row.unit} of {row.host}"
    return f"GPU {row.gpu} of {row.host}" if row.gpu else row.host


def standing(
    first: JobCase, second: JobCase, steps: tuple[float, float], measure: SweepRow
) -> Standing | None:
    """What stands out in the second job over the common steps; None if nothing does, or one of the
    jobs does not record it."""
    if not measure.domain:
        return None
    _, usual_levels = levels(first, measure, steps)
    rows, own = levels(second, measure, steps)
    known = usual_levels[np.isfinite(usual_levels)]
    if not known.size or not np.isfinite(own).any():
        return None
    usual = float(np.median(known))
    spread = float(stats.sigma(known)) if known.size > 2 else float(np.ptp(known))
    rises = measure.worse * (own - usual)
    least = max(measure.least, APART * spread, SHARE * abs(usual))
    greatest = float(np.nanmax(rises))
    if greatest < least:
        return None
    order = np.argsort(-np.nan_to_num(rises, nan=-np.inf))
    chosen = [int(i) for i in order if rises[i] >= max(least, ALIKE * greatest)]
    hosts = {rows[index].host for index in chosen}
    panel = second.view.panel(measure.key)
    return Standing(
        measure=measure,
        rows=tuple(rows[index] for index in chosen),
        everywhere=everywhere(len(hosts), len(second.hosts)),
        rise=float(own[chosen[0]] - usual),
        unit=panel.quantity.unit if measure.total else panel.unit,
    )


def levels(
    case: JobCase, measure: SweepRow, steps: tuple[float, float]
) -> tuple[tuple[SeriesOwner, ...], Floats]:
    """The rows of a measure and the usual level of each over the common steps (S,)."""
    panel = case.view.panel(measure.key)
    cells = inside(case, steps)
    if panel.empty or not cells.any():
        return (), np.empty(0)
    if measure.total:
        return panel.rows, np.nansum(panel.increases()[:, cells], axis=1)
    if panel.quantity.kind == "counter":
        return panel.rows, stats.mean(panel.rates()[:, cells], axis=1)
    return panel.rows, stats.median(panel.values[:, cells], axis=1)

"""Errors that GPUs, their links and drivers counted during the job.

Counters run from boot or driver load: only growth inside the job counts. A series that first
appears in the middle of the job, while its host was already being read, began at zero: that is how
an Xid or a kernel-log kind shows its first error.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats, wording
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.panel import SeriesOwner, SeriesPanel
from ray_sentinel.diagnose.quantities import QUANTITIES
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.evidence import xids
from ray_sentinel.model.thresholds import (
    GPU_CORRECTED_OVER_PEERS,
    GPU_PCIE_NONFATAL,
    GPU_PCIE_REPLAYS,
    GPU_UNCORRECTED,
    NVLINK_KINDS,
    NVLINK_RECOVERIES,
    OVER_PEERS,
)

Severity = Literal["fatal", "degrading", "note"]

SPARSE = frozenset({"err.xid", "err.dmesg", "err.remapped", "err.dmesg_gpu"})
"""Families whose series may appear only with their first error."""
_OF_ALERT: dict[str, Severity] = {"critical": "fatal", "warning": "degrading", "info": "note"}
_FATAL = {
    "err.ras_umc_ue": "ras-ue",
    "err.ras_xgmi_ue": "link-ue",
    "err.ras_gfx_ue": "gpu-ue",
    "err.ras_mmhub_ue": "gpu-ue",
    "err.ras_sdma_ue": "gpu-ue",
    "err.ecc_ue": "ecc-ue",
    "err.pcie_fatal": "pcie-fatal",
}
DEGRADING = {
    "err.ras_umc_ce": "ras-ce",
    "err.ras_xgmi_ce": "link-ce",
    "err.ras_gfx_ce": "gpu-ce",
    "err.ras_mmhub_ce": "gpu-ce",
    "err.ras_sdma_ce": "gpu-ce",
    "err.ecc_ce": "ecc-ce",
    "err.pcie_nonfatal": "pcie-nonfatal",
    "err.pcie_ce": "pcie-ce",
    "err.pcie_replay": "pcie-replay",
    "err.nvlink": "nvlink",
    "err.remapped": "remapped",
}
LINKS = frozenset({"link-ce", "pcie-nonfatal", "pcie-ce", "pcie-replay", "nvlink"})
"""Kinds of errors of a link: what was lost on it is sent again, which takes time."""
BUSY_SECONDS = 60.0
"""Seconds over which errors are counted to say when a part had trouble."""
BUSY_SHARE = 0.1
"""Share of what it counts at its busiest from which a part has trouble: a single error long before
is not the beginning."""
JOIN_SECONDS = 180.0
"""Seconds between two errors that belong to the same trouble."""
_LIMITS = {
    "pcie-nonfatal": GPU_PCIE_NONFATAL,
    "pcie-replay": GPU_PCIE_REPLAYS,
}


class DeviceErrors(Anomaly, frozen=True, kw_only=True):
    """Errors of one kind on one GPU or host, from the first one on; their number is the size.

    Kinds: "ras-ue" (memory), "link-ue", "gpu-ue" (engines), "ecc-ue", "pcie-fatal", "xid",
    "dmesg-gpu", "ras-ce", ...
    """

    severity: Severity
    title: str
    """The errors' name, in the plural."""
    cells: Bools
    """The cells (T,) in which so many were counted that the part had trouble."""


def counted(case: JobCase) -> bool:
    """Whether any error counter is recorded."""
    return any(case.view.has(key) for key in QUANTITIES if key.startswith("err."))


def find(case: JobCase) -> tuple[DeviceErrors, ...]:
    """All faults of the job, fatal ones first, then by time."""
    found: list[DeviceErrors] = []
    for key, kind in _FATAL.items():
        found += _grown(case, key, kind, "fatal", least=GPU_UNCORRECTED.limit)
    for key, kind in DEGRADING.items():
        found += _degrading(case, key, kind)
    found += _xids(case)
    found += _kernel_log(case)
    order = {"fatal": 0, "degrading": 1, "note": 2}
    return tuple(sorted(found, key=lambda fault: (order[fault.severity], fault.at)))


def growth(case: JobCase, panel: SeriesPanel) -> Floats:
    """Errors by cell (S, T); a sparse family's late series begin at zero."""
    grown = panel.increases()
    if panel.quantity.key not in SPARSE or panel.empty:
        return grown
    began = np.array([stats.first_index(np.isfinite(row)) or 0 for row in panel.values])
    for index, row in enumerate(panel.rows):
        first = int(began[index])
        host = case.hosts.index(row.host) if row.host in case.hosts else None
        alive = stats.first_index(case.present[host]) if host is not None else None
        late = alive is not None and first > alive + 3
        # All hosts' series beginning together is a family that is read late, not an error.
        together = len(panel.rows) > 1 and float(np.ptp(began)) <= 2
        if late and not together:
            grown[index, first] = panel.values[index, first]
    return grown


def _grown(
    case: JobCase,
    key: str,
    kind: str,
    severity: Severity,
    least: float,
    only: SeriesPanel | None = None,
) -> list[DeviceErrors]:
    panel = only if only is not None else case.view.panel(key)
    if panel.empty:
        return []
    grown = growth(case, panel)
    found = []
    for row, rises in zip(panel.rows, grown, strict=True):
        count = float(np.nansum(rises))
        if count >= least:
            found.append(_fault(panel, row, rises, kind, severity, count))
    return found


def _fault(
    panel: SeriesPanel, row: SeriesOwner, rises: Floats, kind: str, severity: Severity, count: float
) -> DeviceErrors:
    cells = np.flatnonzero(rises > 0)
    title = panel.quantity.title + (f" {row.unit}" if row.unit else "")
    whose = f"GPU {row.gpu} of {row.host}" if row.gpu else row.host
    text = f"{whose}: {wording.count(count, title)} within the job"
    grows = panel.quantity.kind == "counter"
    return DeviceErrors.of_row(
        panel, row, kind, text, int(cells[0]), count, severity=severity, title=title,
        cells=_busy(rises, panel.step),
        promql=panel.growth_promql(row) if grows else panel.promql(row),
    )  # fmt: skip


def _busy(rises: Floats, step: float) -> Bools:
    rates = stats.smoothed(np.nan_to_num(rises), max(1, round(BUSY_SECONDS / step)))
    return stats.joined(rates >= BUSY_SHARE * rates.max(), max(1, round(JOIN_SECONDS / step)))


def _degrading(case: JobCase, key: str, kind: str) -> list[DeviceErrors]:
    """Errors that were corrected, or that cost a transaction: a few are only noted; as many as the
    table says, and many more than the peers have, mean a failing part."""
    panel = case.view.panel(key)
    if panel.empty:
        return []
    grown = growth(case, panel)
    peers = OVER_PEERS * stats.background(np.nansum(grown, axis=1))
    failing = {
        (row.host, row.gpu, row.unit)
        for row, rises in zip(panel.rows, grown, strict=True)
        if _crosses(kind, row, rises, panel.step) and np.nansum(rises) >= peers
    }
    found = _grown(case, key, kind, "note", least=max(1.0, peers))
    return [
        msgspec.structs.replace(fault, severity="degrading") if own in failing else fault
        for fault in found
        for own in [(fault.host, fault.gpu, fault.unit)]
    ]


def _crosses(kind: str, row: SeriesOwner, rises: Floats, step: float) -> bool:
    """Whether ``rises`` (T,), cells of ``step`` seconds, come to the limit of their kind."""
    limit = _LIMITS.get(kind)
    if kind == "nvlink" and row.unit.split("/")[-1] in NVLINK_KINDS:
        limit = NVLINK_RECOVERIES
    if limit is None:
        return GPU_CORRECTED_OVER_PEERS.crossed(float(np.nansum(rises)))
    return limit.crossed(stats.most_within(rises, max(1, round(limit.seconds / step))))


def _xids(case: JobCase) -> list[DeviceErrors]:
    return [
        msgspec.structs.replace(fault, severity=_of_xid(fault.unit))
        for fault in (*_grown(case, "err.xid", "xid", "fatal", least=1.0), *_last_xids(case))
    ]


def _last_xids(case: JobCase) -> list[DeviceErrors]:
    """Each change of the number of a GPU's last Xid, where only that is reported
    (dcgm-exporter)."""
    panel = case.view.panel("err.xid_last")
    found = []
    for row, values in zip(panel.rows, panel.values, strict=True):
        known = np.flatnonzero(np.isfinite(values))
        changed = known[1:][np.diff(values[known]) != 0]
        for number in np.unique(values[changed][values[changed] > 0]):
            came = np.zeros(values.size)
            came[changed[values[changed] == number]] = 1.0
            one = msgspec.structs.replace(row, unit=f"{number:.0f}")
            found.append(_fault(panel, one, came, "xid", "fatal", float(came.sum())))
    return found


def _of_xid(number: str) -> Severity:
    known = xids.severity(int(number) if number.isdecimal() else -1)
    return _OF_ALERT[known]


def _kernel_log(case: JobCase) -> list[DeviceErrors]:
    """GPU errors in the kernel log, on the hosts that have clearly more than the others."""
    panel = case.view.panel("err.dmesg_gpu")
    if panel.empty:
        panel = case.view.panel("err.dmesg").pick(lambda row: row.unit == "gpu")
    if panel.empty:
        return []
    totals = np.nansum(growth(case, panel), axis=1)
    peers = stats.background(totals)
    found = _grown(case, panel.quantity.key, "dmesg-gpu", "degrading", 1.0, only=panel)
    return [fault for fault in found if fault.size > max(0.0, 3 * peers)]

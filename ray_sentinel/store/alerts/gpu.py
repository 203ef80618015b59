"""Alerts on GPUs, NVIDIA's and AMD's."""

from __future__ import annotations

from ray_sentinel.store.alerts.model import Alert, AlertGroup, came, came_while_watched, grew
from ray_sentinel.store.alerts.xid import CRITICAL, INFO

RAS_BLOCKS = ("umc", "xgmi", "gfx", "mmhub", "sdma")
WHOLE = 'gpu!~".*:.*"'
"""No MIG devices: they come and go with a setting."""
_GPU = "GPU {{ $labels.gpu }} of {{ $labels.host }}"
_GPUS = f"count by (host) (count by (host, gpu) (hw_gpu_info{{{WHOLE}}}))"
_GPUS_LATELY = (
    f"count by (host) (count by (host, gpu) (last_over_time(hw_gpu_info{{{WHOLE}}}[1h])))"
)
_XID = "hw_gpu_xid_errors_total"


def _ras(kind: str) -> str:
    """Growth of each block's count, as one vector: a rate over several names would lose them."""
    parts = (
        f'label_replace(increase(hw_gpu_ras_{block}_{kind}_total[10m]), "block", "{block}", "", "")'
        for block in RAS_BLOCKS
    )
    return f"({' or '.join(parts)}) > 0"


XIDS = (
    Alert(
        name="GpuXidCritical",
        expr=came(f'{_XID}{{xid=~"{CRITICAL}"}}', "1h"),
        severity="critical",
        summary=f"Xid {{{{ $labels.xid }}}} on {_GPU}",
        action="The GPU needs a reset or service before it is used again: drain the node.",
    ),
    Alert(
        name="GpuXid",
        expr=came_while_watched(f'{_XID}{{xid!~"{CRITICAL}|{INFO}"}}', "30m"),
        severity="warning",
        summary=f"Xid {{{{ $labels.xid }}}} on {_GPU}",
        action="Look the number up in NVIDIA's Xid catalog; drain the node if it comes back.",
    ),
    Alert(
        name="GpuXidApplication",
        expr=came_while_watched(f'{_XID}{{xid=~"{INFO}"}}', "10m"),
        severity="info",
        summary=f"Xid {{{{ $labels.xid }}}} on {_GPU}",
        action="The program's own fault, or handled by the driver: look at the rank's log.",
    ),
)
MEMORY = (
    Alert(
        name="GpuEccUncorrected",
        expr=grew("hw_gpu_ecc_uncorrected_total"),
        severity="critical",
        summary=f"Uncorrected memory errors on {_GPU}",
        action="The job's data may be wrong and the rank is about to fail: reset the GPU.",
    ),
    Alert(
        name="GpuEccCorrectedOften",
        expr="increase(hw_gpu_ecc_corrected_total[1h]) > 100",
        severity="warning",
        summary=f"More than 100 corrected memory errors an hour on {_GPU}",
        action="Plan to have the GPU's memory tested.",
    ),
    Alert(
        name="GpuRasUncorrected",
        expr=_ras("ue"),
        severity="critical",
        summary=f"Uncorrected errors in {{{{ $labels.block }}}} of {_GPU}",
        action="Drain the node and reset the GPU.",
    ),
    Alert(
        name="GpuRowRemapFailed",
        expr='hw_gpu_row_remap_pending{cause="failure"} > 0',
        severity="critical",
        summary=f"Rows of memory could not be remapped on {_GPU}",
        action="The GPU has no spare rows left: have it replaced.",
    ),
    Alert(
        name="GpuRowRemapPending",
        expr='hw_gpu_row_remap_pending{cause!="failure"} > 0',
        severity="warning",
        summary=f"Memory waits to be remapped or retired on {_GPU}",
        action="Reset the GPU between two jobs.",
    ),
)
BUS = (
    Alert(
        name="GpuLost",
        expr=f"{_GPUS} < {_GPUS_LATELY}",
        severity="critical",
        wait="1m",
        summary="{{ $labels.host }} has fewer GPUs than an hour ago",
        action="The kernel log says why; drain the node.",
    ),
    Alert(
        name="GpuPcieFatal",
        expr=grew("hw_gpu_pcie_fatal_total"),
        severity="critical",
        summary=f"Fatal PCIe errors on {_GPU}",
        action="The link is down or about to be: drain the node.",
    ),
    Alert(
        name="GpuPcieNonfatal",
        expr=grew("hw_gpu_pcie_nonfatal_total"),
        severity="warning",
        summary=f"Uncorrected PCIe errors on {_GPU}",
        action="Have slot, riser and cable looked at.",
    ),
    Alert(
        name="GpuPcieReplaysOften",
        expr="increase(hw_gpu_pcie_replay_total[1h]) > 100",
        severity="warning",
        summary=f"More than 100 PCIe replays an hour on {_GPU}",
        action="The link is marginal: have slot, riser and cable looked at.",
    ),
    Alert(
        name="GpuNvlinkErrors",
        expr='sum by (host, gpu, link) (increase(hw_gpu_nvlink_errors_total{kind=~"recovery|'
        'ecc_data"}[10m])) > 0',
        severity="warning",
        summary=f"Errors on NVLink {{{{ $labels.link }}}} of {_GPU}",
        action="Collectives are slowed down while the link recovers: reset the GPU between jobs.",
    ),
)
HEAT = (
    Alert(
        name="GpuHot",
        expr="hw_gpu_temperature_celsius > 90",
        severity="warning",
        wait="5m",
        summary=f"{_GPU} is hotter than 90 °C",
        action="Look at fans, airflow and the cooling of the rack.",
    ),
    Alert(
        name="GpuThrottledByHeat",
        expr='hw_gpu_throttle_reason{reason=~"hw_slowdown|hw_thermal_slowdown|sw_thermal_slowdown|'
        'hw_power_brake_slowdown|thermal|prochot"} == 1',
        severity="warning",
        wait="5m",
        summary=f"{_GPU} is slowed down ({{{{ $labels.reason }}}})",
        action="One slow GPU slows the whole job: look at its cooling and power supply.",
    ),
)

GPU = AlertGroup("gpu", XIDS + MEMORY + BUS + HEAT)

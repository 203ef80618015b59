"""Alerts on GPUs, NVIDIA's and AMD's."""

from __future__ import annotations

from ray_sentinel.evidence import xids
from ray_sentinel.store.alerts.model import (
    AlertGroup,
    came,
    came_while_watched,
    critical,
    grew,
    info,
    warning,
)

# The classes of Xids as regular expressions of the label ``xid``.

CRITICAL = "|".join(map(str, sorted(xids.RESET + xids.SERVICE)))
INFO = "|".join(map(str, sorted(xids.APPLICATION + xids.HANDLED)))


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
    critical(
        "GpuXidCritical",
        came(f'{_XID}{{xid=~"{CRITICAL}"}}', "1h"),
        f"Xid {{{{ $labels.xid }}}} on {_GPU}",
        "The GPU needs a reset or service before it is used again: drain the node.",
    ),
    warning(
        "GpuXid",
        came_while_watched(f'{_XID}{{xid!~"{CRITICAL}|{INFO}"}}', "30m"),
        f"Xid {{{{ $labels.xid }}}} on {_GPU}",
        "Look the number up in NVIDIA's Xid catalog; drain the node if it comes back.",
    ),
    info(
        "GpuXidApplication",
        came_while_watched(f'{_XID}{{xid=~"{INFO}"}}', "10m"),
        f"Xid {{{{ $labels.xid }}}} on {_GPU}",
        "The program's own fault, or handled by the driver: look at the rank's log.",
    ),
)
MEMORY = (
    critical(
        "GpuEccUncorrected",
        grew("hw_gpu_ecc_uncorrected_total"),
        f"Uncorrected memory errors on {_GPU}",
        "The job's data may be wrong and the rank is about to fail: reset the GPU.",
    ),
    warning(
        "GpuEccCorrectedOften",
        "increase(hw_gpu_ecc_corrected_total[1h]) > 100",
        f"More than 100 corrected memory errors an hour on {_GPU}",
        "Plan to have the GPU's memory tested.",
    ),
    critical(
        "GpuRasUncorrected",
        _ras("ue"),
        f"Uncorrected errors in {{{{ $labels.block }}}} of {_GPU}",
        "Drain the node and reset the GPU.",
    ),
    critical(
        "GpuRowRemapFailed",
        'hw_gpu_row_remap_pending{cause="failure"} > 0',
        f"Rows of memory could not be remapped on {_GPU}",
        "The GPU has no spare rows left: have it replaced.",
    ),
    warning(
        "GpuRowRemapPending",
        'hw_gpu_row_remap_pending{cause!="failure"} > 0',
        f"Memory waits to be remapped or retired on {_GPU}",
        "Reset the GPU between two jobs.",
    ),
)
BUS = (
    critical(
        "GpuLost",
        f"{_GPUS} < {_GPUS_LATELY}",
        "{{ $labels.host }} has fewer GPUs than an hour ago",
        "The kernel log says why; drain the node.",
        wait="1m",
    ),
    critical(
        "GpuPcieFatal",
        grew("hw_gpu_pcie_fatal_total"),
        f"Fatal PCIe errors on {_GPU}",
        "The link is down or about to be: drain the node.",
    ),
    warning(
        "GpuPcieNonfatal",
        grew("hw_gpu_pcie_nonfatal_total"),
        f"Uncorrected PCIe errors on {_GPU}",
        "Have slot, riser and cable looked at.",
    ),
    warning(
        "GpuPcieReplaysOften",
        "increase(hw_gpu_pcie_replay_total[1h]) > 100",
        f"More than 100 PCIe replays an hour on {_GPU}",
        "The link is marginal: have slot, riser and cable looked at.",
    ),
    warning(
        "GpuNvlinkErrors",
        'sum by (host, gpu, link) (increase(hw_gpu_nvlink_errors_total{kind=~"recovery|'
        'ecc_data"}[10m])) > 0',
        f"Errors on NVLink {{{{ $labels.link }}}} of {_GPU}",
        "Collectives are slowed down while the link recovers: reset the GPU between jobs.",
    ),
)
HEAT = (
    warning(
        "GpuHot",
        "hw_gpu_temperature_celsius > 90",
        f"{_GPU} is hotter than 90 °C",
        "Look at fans, airflow and the cooling of the rack.",
        wait="5m",
    ),
    warning(
        "GpuThrottledByHeat",
        'hw_gpu_throttle_reason{reason=~"hw_slowdown|hw_thermal_slowdown|sw_thermal_slowdown|'
        'hw_power_brake_slowdown|thermal|prochot"} == 1',
        f"{_GPU} is slowed down ({{{{ $labels.reason }}}})",
        "One slow GPU slows the whole job: look at its cooling and power supply.",
        wait="5m",
    ),
)

GPU = AlertGroup("gpu", XIDS + MEMORY + BUS + HEAT)

"""Expensive calls, of some milliseconds each, made at a slower rate: PCIe throughput 40 ms a GPU
(the driver measures for 20 ms in each direction), the list of processes 4.5 ms, all NVLinks some
milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pynvml

from ray_sentinel.api import Sample
from ray_sentinel_plugins import _gpu_metrics as gpu_metrics
from ray_sentinel_plugins._nvml.library import Nvml

LINK_ERRORS = {
    "replay": pynvml.NVML_NVLINK_ERROR_DL_REPLAY,
    "recovery": pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,
    "crc_flit": pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
    "crc_data": pynvml.NVML_NVLINK_ERROR_DL_CRC_DATA,
    "ecc_data": pynvml.NVML_NVLINK_ERROR_DL_ECC_DATA,
}
KILOBYTE = 1024
"""Bytes of the unit in which NVML gives the throughput per second, by its manual."""


def throughput(nvml: Nvml, handle: Any, gpu: str) -> Iterator[Sample]:
    """The throughput over PCIe, in both directions. Raises GpuLost."""
    for metric, direction in (
        (gpu_metrics.PCIE_RX, pynvml.NVML_PCIE_UTIL_RX_BYTES),
        (gpu_metrics.PCIE_TX, pynvml.NVML_PCIE_UTIL_TX_BYTES),
    ):
        rate = nvml.ask("nvmlDeviceGetPcieThroughput", handle, direction)
        if rate is not None:
            yield metric(rate * KILOBYTE, gpu)


def links(nvml: Nvml, handle: Any, gpu: str) -> Iterator[Sample]:
    """The errors of all NVLinks. Raises GpuLost."""
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = nvml.ask("nvmlDeviceGetNvLinkState", handle, link)
        if state is None:
            # Links are numbered from 0 without gaps: beyond the last one is nothing.
            return
        for kind, code in LINK_ERRORS.items():
            errors = nvml.ask("nvmlDeviceGetNvLinkErrorCounter", handle, link, code)
            if errors is not None:
                yield gpu_metrics.NVLINK_ERRORS(errors, gpu, str(link), kind)


def processes(nvml: Nvml, handle: Any) -> dict[int, int | None] | None:
    """Processes that compute on a GPU, with their device memory where it is known, in bytes.

    None if the driver does not report them. In a container without the host's pids these are pids
    of another namespace.
    """
    for version in ("_v3", "_v2"):
        found = nvml.ask(f"nvmlDeviceGetComputeRunningProcesses{version}", handle)
        if found is not None:
            return {int(process.pid): process.usedGpuMemory for process in found}
    return None


def rank_memory(found: dict[int, int | None], gpu: str, ranks: Collection[int]) -> Iterator[Sample]:
    """Device memory of the ranks among the processes."""
    for pid, used in found.items():
        if pid in ranks and used is not None:
            yield gpu_metrics.PROCESS_MEMORY(used, gpu, str(pid))

"""What is read of each GPU at each collection: calls of some microseconds each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pynvml

from ray_sentinel.api import Metric, Sample
from ray_sentinel_plugins import _gpu_metrics as gpu_metrics
from ray_sentinel_plugins._nvml.library import Nvml

REASONS = {
    pynvml.nvmlClocksThrottleReasonGpuIdle: "gpu_idle",
    pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting: "applications_clocks_setting",
    pynvml.nvmlClocksThrottleReasonSwPowerCap: "sw_power_cap",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hw_slowdown",
    pynvml.nvmlClocksThrottleReasonSyncBoost: "sync_boost",
    pynvml.nvmlClocksThrottleReasonSwThermalSlowdown: "sw_thermal_slowdown",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hw_thermal_slowdown",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "hw_power_brake_slowdown",
    pynvml.nvmlClocksThrottleReasonDisplayClockSetting: "display_clock_setting",
}
"""The name that nvidia-smi gives to each bit of the driver's mask."""

# (metric, function, further arguments, what one unit of the answer is in the metric's unit)
SINGLE: tuple[tuple[Metric, str, tuple[int, ...], float], ...] = (
    (gpu_metrics.TEMPERATURE, "nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,), 1),
    (gpu_metrics.POWER, "nvmlDeviceGetPowerUsage", (), 1e-3),
    (gpu_metrics.POWER_LIMIT, "nvmlDeviceGetEnforcedPowerLimit", (), 1e-3),
    (gpu_metrics.ENERGY, "nvmlDeviceGetTotalEnergyConsumption", (), 1e-3),
    (gpu_metrics.PCIE_REPLAY, "nvmlDeviceGetPcieReplayCounter", (), 1),
    (
        gpu_metrics.ECC_CORRECTED,
        "nvmlDeviceGetTotalEccErrors",
        (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_AGGREGATE_ECC),
        1,
    ),
    (
        gpu_metrics.ECC_UNCORRECTED,
        "nvmlDeviceGetTotalEccErrors",
        (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_AGGREGATE_ECC),
        1,
    ),
)
CLOCKS = {"sclk": pynvml.NVML_CLOCK_SM, "mclk": pynvml.NVML_CLOCK_MEM}
MIG_ENABLED = 1


def read(nvml: Nvml, handle: Any, gpu: str) -> Iterator[Sample]:
    """All readings of one GPU. Raises GpuLost in the middle if it goes away."""
    for metric, function, args, scale in SINGLE:
        value = nvml.ask(function, handle, *args)
        if value is not None:
            yield metric(value * scale if scale != 1 else value, gpu)
    for reader in (_memory_temperature, _utilization, _clocks, memory, _throttling, _rows):
        yield from reader(nvml, handle, gpu)


def _memory_temperature(nvml: Nvml, handle: Any, gpu: str) -> Iterator[Sample]:
    values = nvml.ask("nvmlDeviceGetFieldValues", handle, [pynvml.NVML_FI_DEV_MEMORY_TEMP])
    # Each field has a return code of its own; 0 degrees is what cards without the sensor say.
    if values and values[0].nvmlReturn == pynvml.NVML_SUCCESS and values[0].value.uiVal:
        yield gpu_metrics.MEMORY_TEMPERATURE(values[0].value.uiVal, gpu)


def _utilization(nvml: Nvml, handle: Any, gpu: str) -> Iterator[Sample]:
    rates = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
    if rates is not None:
        yield gpu_metrics.UTILIZATION(rates.gpu / 100, gpu)
        yield gpu_metrics.MEMORY_UTILIZATION(rates.memory / 100, gpu)


def _clocks(nvml: Nvml, handle: Any, gpu: str) -> Iterator[Sample]:
    for name, kind in CLOCKS.items():
        clock = nvml.ask("nvmlDeviceGetClockInfo", handle, kind)
        if clock is not None:
            yield gpu_metrics.CLOCK(clock, gpu, name)


def memory(nvml: Nvml, handle: Any, gpu: str) -> Iterator[Sample]:
    """Used and total, as nvidia-smi shows them: without what the driver keeps for itself."""
    info = nvml.ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    if info is None:
        info = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    if info is not None:
        yield gpu_metrics.VRAM_USED(info.used, gpu)
        yield gpu_metrics.VRAM_TOTAL(info.total, gpu)


def _throttling(nvml: Nvml, handle: Any, gpu: str) -> Iterator[Sample]:
    # Drivers before 535 know the calls by their older names.
    for word in ("Event", "Throttle"):
        mask = nvml.ask(f"nvmlDeviceGetCurrentClocks{word}Reasons", handle)
        if mask is not None:
            known = nvml.ask(f"nvmlDeviceGetSupportedClocks{word}Reasons", handle)
            for bit, reason in REASONS.items():
                if known is None or known & bit:
                    yield gpu_metrics.THROTTLE(int(bool(mask & bit)), gpu, reason)
            return


def _rows(nvml: Nvml, handle: Any, gpu: str) -> Iterator[Sample]:
    rows = nvml.ask("nvmlDeviceGetRemappedRows", handle)
    if rows is not None:
        correctable, uncorrectable, pending, failed = rows
        yield gpu_metrics.REMAPPED_ROWS(correctable, gpu, "correctable")
        yield gpu_metrics.REMAPPED_ROWS(uncorrectable, gpu, "uncorrectable")
        yield gpu_metrics.REMAP_PENDING(int(bool(pending)), gpu, "any")
        yield gpu_metrics.REMAP_PENDING(int(bool(failed)), gpu, "failure")
        return
    # Before Ampere whole pages are retired.
    causes = {
        "correctable": pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
        "uncorrectable": pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
    }
    for cause, code in causes.items():
        pages = nvml.ask("nvmlDeviceGetRetiredPages", handle, code)
        if pages is not None:
            yield gpu_metrics.REMAPPED_ROWS(len(pages), gpu, cause)
    pending = nvml.ask("nvmlDeviceGetRetiredPagesPendingStatus", handle)
    if pending is not None:
        yield gpu_metrics.REMAP_PENDING(int(pending), gpu, "any")


def mig_devices(nvml: Nvml, handle: Any) -> dict[int, Any]:
    """The MIG devices of a GPU by their index, or nothing where MIG is off or unknown."""
    mode = nvml.ask("nvmlDeviceGetMigMode", handle)
    if mode is None or mode[0] != MIG_ENABLED:
        return {}
    found = {}
    for index in range(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        device = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if device is not None:
            found[index] = device
    return found

"""The series of GPUs of either vendor: one name for one thing."""

from __future__ import annotations

from ray_sentinel.api import Metric


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "gauge", text, ("gpu", *labels))


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, "counter", text, ("gpu", *labels))


INFO = _gauge("hw_gpu_info", "Identity.", "uuid", "name", "vendor", "driver", "pci")
TEMPERATURE = _gauge("hw_gpu_temperature_celsius", "Temperature of the GPU (AMD: junction).")
MEMORY_TEMPERATURE = _gauge("hw_gpu_memory_temperature_celsius", "Temperature of its memory.")
POWER = _gauge("hw_gpu_power_watts", "Power draw.")
POWER_LIMIT = _gauge("hw_gpu_power_limit_watts", "Power limit in force.")
ENERGY = _counter("hw_gpu_energy_joules_total", "Energy since the driver was loaded.")
UTILIZATION = _gauge("hw_gpu_utilization_ratio", "Share of time in which a kernel ran, 0 to 1.")
MEMORY_UTILIZATION = _gauge(
    "hw_gpu_memory_utilization_ratio", "Share of time in which memory was read or written, 0 to 1."
)
CLOCK = _gauge("hw_gpu_clock_mhz", "Clock of the shaders (sclk) and of the memory (mclk).", "type")
VRAM_USED = _gauge("hw_gpu_vram_used_bytes", "Device memory in use.")
VRAM_TOTAL = _gauge("hw_gpu_vram_total_bytes", "Device memory in all.")
THROTTLE = _gauge("hw_gpu_throttle_reason", "1 while the clocks are held down for it.", "reason")
ECC_CORRECTED = _counter("hw_gpu_ecc_corrected_total", "Memory errors corrected.")
ECC_UNCORRECTED = _counter("hw_gpu_ecc_uncorrected_total", "Memory errors not corrected.")
REMAPPED_ROWS = _counter(
    "hw_gpu_remapped_rows_total", "Rows or pages of memory taken out of use.", "cause"
)
REMAP_PENDING = _gauge(
    "hw_gpu_row_remap_pending", "Rows or pages that wait for a reset to be replaced.", "cause"
)
PCIE_CORRECTABLE = _counter("hw_gpu_pcie_correctable_total", "PCIe errors corrected (AER).")
PCIE_NONFATAL = _counter("hw_gpu_pcie_nonfatal_total", "PCIe errors that lost data (AER).")
PCIE_FATAL = _counter("hw_gpu_pcie_fatal_total", "PCIe errors that broke the link (AER).")
PCIE_REPLAY = _counter("hw_gpu_pcie_replay_total", "PCIe packets sent again.")
PCIE_RX = _gauge("hw_gpu_pcie_rx_bytes_per_second", "Received over PCIe, over 20 ms.")
PCIE_TX = _gauge("hw_gpu_pcie_tx_bytes_per_second", "Sent over PCIe, over 20 ms.")
NVLINK_ERRORS = _counter("hw_gpu_nvlink_errors_total", "Errors of an NVLink.", "link", "kind")
USER_PROCESSES = Metric(
    "hw_gpu_user_processes", "gauge", "Processes that use a GPU of this host for computing."
)
PROCESS_MEMORY = _gauge("hw_gpu_process_memory_bytes", "Device memory of a rank.", "pid")
XIDS = _counter("hw_gpu_xid_errors_total", "Errors that the NVIDIA driver reported.", "xid")
AER = (PCIE_CORRECTABLE, PCIE_NONFATAL, PCIE_FATAL)
READINGS = (
    INFO,
    TEMPERATURE,
    MEMORY_TEMPERATURE,
    POWER,
    POWER_LIMIT,
    ENERGY,
    UTILIZATION,
    MEMORY_UTILIZATION,
    CLOCK,
    VRAM_USED,
    VRAM_TOTAL,
    THROTTLE,
)
"""Metrics that are read of a card of any maker."""

"""The GPUs of this node and who holds them: from ``nvidia-smi``, or from amdgpu's files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ray_sentinel import nvidia_smi
from ray_sentinel.errors import SentinelError
from ray_sentinel.kernel_files import kernel_number, kernel_text
from ray_sentinel.masking import mask
from ray_sentinel.model.health import GpuProcess, GpuState
from ray_sentinel.text import one_line

_AMD = "0x1002"
_KFD = "class/kfd/kfd"
"""Path of the compute driver's folder below /sys."""


def gpus_here(
    sys: Path = Path("/sys"), proc: Path = Path("/proc")
) -> tuple[tuple[GpuState, ...], tuple[GpuProcess, ...], str]:
    """(GPUs, processes on them, what went wrong or empty). Having no GPU is not a problem."""
    try:
        answer = nvidia_smi.ask()
    except SentinelError as error:
        return (), (), str(error)
    if answer is None:
        return *amd_gpus_here(sys, proc), ""
    return answer.states, answer.processes, ""


def amd_gpus_here(sys: Path, proc: Path) -> tuple[tuple[GpuState, ...], tuple[GpuProcess, ...]]:
    """(GPUs, processes on them). Indices follow the order of PCI addresses, as on :9400."""
    devices = _devices(sys)
    gpus = tuple(
        _state(index, device)
        for index, device in devices.items()
        if (device / "mem_info_vram_total").exists()
    )
    numbers = _numbers(sys, {device.name: index for index, device in devices.items()})
    return gpus, tuple(_processes(sys, proc, numbers))


def _devices(sys: Path) -> dict[str, Path]:
    """The PCI devices' folders by index. A folder's name is its address."""
    devices = {
        card.resolve()
        for card in (sys / "class/drm").glob("card[0-9]*/device")
        if kernel_text(card / "vendor") == _AMD
    }
    # Not by path: that begins with the bridges above, which are numbered in another order.
    ordered = sorted(devices, key=lambda device: device.name)
    return {str(index): device for index, device in enumerate(ordered)}


def _state(index: str, device: Path) -> GpuState:
    watts = next(iter(sorted(device.glob("hwmon/hwmon*/power1_average"))), None)
    power, degrees = kernel_number(watts) if watts else None, _heat(device)
    percent = kernel_number(device / "gpu_busy_percent")
    return GpuState(
        index=index,
        uuid=device.name,
        name=kernel_text(device / "product_name"),
        utilization_percent=float(percent) if percent is not None else None,
        memory_used_bytes=kernel_number(device / "mem_info_vram_used"),
        memory_total_bytes=kernel_number(device / "mem_info_vram_total"),
        power_watts=power / 1e6 if power is not None else None,
        temperature_celsius=degrees / 1000 if degrees is not None else None,
    )


def _heat(device: Path) -> int | None:
    """The temperature of the junction, as on :9400, in m°C; of the first sensor if none has that
    name."""
    for label in sorted(device.glob("hwmon/hwmon*/temp*_label")):
        if kernel_text(label) == "junction":
            return kernel_number(label.with_name(label.name.replace("_label", "_input")))
    first = next(iter(sorted(device.glob("hwmon/hwmon*/temp1_input"))), None)
    return kernel_number(first) if first else None


def _numbers(sys: Path, indices: Mapping[str, str]) -> dict[str, str]:
    """The index of a GPU by the compute driver's number for it; partitions have one each."""
    found = {}
    for node in (sys / _KFD / "topology/nodes").glob("[0-9]*"):
        number = kernel_text(node / "gpu_id")
        if number in ("", "0"):  # a GPU of another container, a CPU
            continue
        for address in pci_addresses(kernel_text(node / "properties")):
            if address in indices:
                found[number] = indices[address]
                break
    return found


def pci_addresses(properties: str) -> tuple[str, ...]:
    """The PCI addresses that a topology node may mean, the likeliest first.

    ``location_id`` holds bus, device and function in its lower 16 bits (as the kernel's
    ``pci_dev_id``); a partition's number is in its uppermost bits or, in older kernels, in those
    of the function.
    """
    pairs = (line.split() for line in properties.splitlines())
    values = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
    location = values.get("location_id")
    if location is None:
        return ()
    bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
    slot = f"{values.get('domain', 0):04x}:{bus:02x}:{device:02x}"
    return f"{slot}.{function}", f"{slot}.0"


def _processes(sys: Path, proc: Path, numbers: Mapping[str, str]) -> list[GpuProcess]:
    """``<kfd>/proc/<pid>/vram_<gpu id>``: who has opened the compute driver."""
    found = []
    for folder in sorted((sys / _KFD / "proc").glob("[0-9]*")):
        name = mask(one_line(kernel_text(proc / folder.name / "comm"), 64))
        sizes: dict[str, int] = {}
        for used in sorted(folder.glob("vram_*")):
            number = used.name.removeprefix("vram_")
            gpu = numbers.get(number, f"kfd-{number}")
            if size := kernel_number(used):
                sizes[gpu] = sizes.get(gpu, 0) + size
        found += [
            GpuProcess(gpu=gpu, pid=int(folder.name), name=name, memory_bytes=size)
            for gpu, size in sizes.items()
        ]
    return found

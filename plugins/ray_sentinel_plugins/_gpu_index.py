"""Which index a GPU has: the ``gpu`` label that all our series share."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel_plugins._amdgpu.cards import find
from ray_sentinel_plugins._files import Files

NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
"""PCI classes of GPUs: VGA and 3D controllers."""


def nvidia_addresses(files: Files, proc: Path, sys: Path) -> list[str]:
    """The PCI addresses of NVIDIA's GPUs in NVML's order, which is that of the addresses.

    The folders of ``/proc/driver/nvidia/gpus`` are the GPUs that the driver shows; where there are
    none, the devices of that vendor and class.
    """
    names = [name for name in files.names(proc / "driver/nvidia/gpus") if ":" in name]
    if not names:
        devices = sys / "bus/pci/devices"
        names = [name for name in files.names(devices) if _is_nvidia_gpu(files, devices / name)]
    return sorted(name.lower() for name in names)


def _is_nvidia_gpu(files: Files, device: Path) -> bool:
    if files.line(device / "vendor") != NVIDIA:
        return False
    return (files.line(device / "class") or "").startswith(GPU_CLASSES)


def nvidia_indices(files: Files, proc: Path, sys: Path) -> dict[str, str]:
    """PCI address without function (``0000:3b:00``) → NVML's index."""
    addresses = nvidia_addresses(files, proc, sys)
    return {address.split(".", 1)[0]: str(index) for index, address in enumerate(addresses)}


def amd_indices(files: Files, sys: Path) -> dict[str, str]:
    """PCI address without function → index, of AMD's GPUs."""
    return {card.pci.split(".", 1)[0]: card.gpu for card in find(files, sys) if card.pci}

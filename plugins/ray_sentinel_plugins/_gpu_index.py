"""Which index a GPU has: the ``gpu`` label that all our series share."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel_plugins._amdgpu.cards import find
from ray_sentinel_plugins._files import Files


def nvidia_indices(files: Files, proc: Path) -> dict[str, str]:
    """PCI address without function (``0000:3b:00``) → NVML's index.

    NVML numbers the GPUs that the driver shows in the order of their PCI addresses; the folders of
    ``/proc/driver/nvidia/gpus`` are those GPUs.
    """
    names = [name.lower() for name in files.names(proc / "driver/nvidia/gpus") if ":" in name]
    return {name.split(".", 1)[0]: str(index) for index, name in enumerate(sorted(names))}


def amd_indices(files: Files, sys: Path) -> dict[str, str]:
    """PCI address without function → index, of AMD's GPUs."""
    return {card.pci.split(".", 1)[0]: card.gpu for card in find(files, sys) if card.pci}

"""Finding AMD's GPUs and their numbers.

A GPU's index is its place in the order of PCI addresses, as rocm-smi, amd-smi and HIP number them.
Card numbers will not do: a server's own graphics chip is often ``card0``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from ray_sentinel_plugins._files import Files, natural

AMD = "0x1002"
MAX_GPUS = 256


class Card(msgspec.Struct, frozen=True):
    """One GPU. ``device`` is its PCI device's folder."""

    gpu: str
    device: Path
    pci: str


def find(files: Files, sys: Path) -> list[Card]:
    """All AMD GPUs that the kernel's amdgpu driver shows."""
    found = []
    root = sys / "class/drm"
    for name in files.names(root):
        # card0-HDMI-A-1 is a connector, renderD128 the same device again.
        if re.fullmatch(r"card\d+", name):
            device = root / name / "device"
            if files.line(device / "vendor") == AMD:
                found.append((_address(files, device), name, device))
    # Cards whose address cannot be read keep their order among themselves, at the end.
    found.sort(key=lambda card: (card[0] == "", card[0], natural(card[1])))
    listed = files.bounded(found, MAX_GPUS, str(root))
    return [Card(str(index), device, pci) for index, (pci, _, device) in enumerate(listed)]


def _address(files: Files, device: Path) -> str:
    """The PCI address: from ``uevent``, or from where the link leads."""
    found = re.search(
        r"^PCI_SLOT_NAME=([0-9a-fA-F:.]+)$", files.text(device / "uevent") or "", re.MULTILINE
    )
    if found:
        return found.group(1).lower()
    try:
        target = os.path.basename(os.readlink(device))
    except OSError:
        return ""
    return (
        target.lower() if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d", target) else ""
    )

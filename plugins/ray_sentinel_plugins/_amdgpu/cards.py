"""Finding AMD's GPUs and their numbers.

A GPU's index is its place in the order of PCI addresses, as rocm-smi, amd-smi and HIP number them.
Card numbers will not do: a server's own graphics chip is often ``card0``.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.text import natural
from ray_sentinel_plugins._files import Files

AMD = "0x1002"
MAX_GPUS = 256
"""Most cards that are read."""


class AmdCard(msgspec.Struct, frozen=True):
    """One GPU. ``device`` is its PCI device's folder."""

    gpu: str
    device: Path
    pci: str


def find(files: Files, sys: Path) -> list[AmdCard]:
    """All AMD GPUs that the kernel's amdgpu driver shows."""
    root = sys / "class/drm"
    # card0-HDMI-A-1 is a connector, renderD128 the same device again.
    names = [name for name in files.names(root) if re.fullmatch(r"card\d+", name)]
    found = []
    for name in names:
        device = root / name / "device"
        uevent = files.text(device / "uevent") or ""
        if _is_amd(files.line(device / "vendor"), uevent):
            found.append((_address(device, uevent), name, device))
    # One address that cannot be read must not give all GPUs behind it another number.
    if all(pci for pci, _, _ in found):
        found.sort(key=lambda card: card[0])
    else:
        found.sort(key=lambda card: natural(card[1]))
    listed = files.bounded(found, MAX_GPUS, str(root))
    return [AmdCard(str(index), device, pci) for index, (pci, _, device) in enumerate(listed)]


def _is_amd(vendor: str | None, uevent: str) -> bool:
    if vendor in (None, AMD) or not vendor.startswith("0x"):
        return vendor == AMD or "DRIVER=amdgpu\n" in uevent
    return False


def _address(device: Path, uevent: str) -> str:
    """The PCI address: from ``uevent``, or from where the link leads."""
    if found := re.search(r"^PCI_SLOT_NAME=([0-9a-fA-F:.]+)$", uevent, re.MULTILINE):
        return found.group(1).lower()
    try:
        target = os.path.basename(os.readlink(device)).lower()
    except OSError:
        return ""
    return target if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d", target) else ""

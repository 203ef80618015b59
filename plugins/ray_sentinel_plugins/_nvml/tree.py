"""What a captured tree tells of NVIDIA's GPUs without their driver: identity and PCIe errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ray_sentinel import regex as re
from ray_sentinel.api import Sample
from ray_sentinel_plugins import _gpu_metrics as gpu_metrics
from ray_sentinel_plugins._files import Files, clean
from ray_sentinel_plugins._gpu_index import nvidia_addresses
from ray_sentinel_plugins._host.identity import nvidia_version
from ray_sentinel_plugins._pci import read_aer

MAX_GPUS = 256


def read(files: Files, proc: Path, sys: Path) -> Iterator[Sample]:
    """All GPUs; nothing where the tree shows none."""
    driver = nvidia_version(files, proc, sys) or ""
    addresses = files.bounded(nvidia_addresses(files, proc, sys), MAX_GPUS, "NVIDIA's GPUs")
    for index, pci in enumerate(addresses):
        known = parse_information(files.text(proc / "driver/nvidia/gpus" / pci / "information"))
        labels = (known.get("GPU UUID", ""), known.get("Model", ""), "nvidia", driver, pci)
        yield gpu_metrics.INFO(1, str(index), *map(clean, labels))
        yield from read_aer(files, sys / "bus/pci/devices" / pci, str(index))


def parse_information(text: str | None) -> dict[str, str]:
    """``/proc/driver/nvidia/gpus/<address>/information``: a name, a colon, blanks, a value.

    A UUID that the driver has not read yet is written with question marks: it is none.

    >>> parse_information("Model: \\t\\t NVIDIA H100\\nGPU UUID: \\t GPU-????????-????\\n")
    {'Model': 'NVIDIA H100'}
    """
    pairs = re.findall(r"^([\w ]+?):[ \t]+(\S.*?)[ \t]*$", text or "", re.MULTILINE)
    return {name: value for name, value in pairs if "??" not in value}

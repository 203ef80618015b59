"""PCI Express advanced error reporting, the same files for devices of any vendor.

Source: the kernel's Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ray_sentinel.api import Sample
from ray_sentinel_plugins._files import Files, counter, pairs
from ray_sentinel_plugins._gpu_metrics import PCIE_CORRECTABLE, PCIE_FATAL, PCIE_NONFATAL

FILES = (
    ("aer_dev_correctable", "TOTAL_ERR_COR", PCIE_CORRECTABLE),
    ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL", PCIE_NONFATAL),
    ("aer_dev_fatal", "TOTAL_ERR_FATAL", PCIE_FATAL),
)


def read_aer(files: Files, device: Path, gpu: str) -> Iterator[Sample]:
    """The totals of one device; nothing if the platform does not report errors."""
    for name, total, metric in FILES:
        if text := files.text(device / name):
            number = parse_aer(text, total)
            if number is not None:
                yield metric(number, gpu)
            else:
                files.complain(device / name, f"has no {total}")


def parse_aer(text: str, total: str) -> int | None:
    """The sum that the kernel adds as the last line.

    >>> parse_aer("RxErr 3\\nBadTLP 1\\nTOTAL_ERR_COR 4\\n", "TOTAL_ERR_COR")
    4
    """
    for key, words in pairs(text):
        if key == total and words:
            return counter(words[0])
    return None


def sysfs_address(address: str) -> str:
    """A PCI address as sysfs names it: NVML writes eight digits of domain, in capitals.

    >>> sysfs_address("00000000:3B:00.0")
    '0000:3b:00.0'
    """
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:] if not domain[:-4].strip('0') else domain}:{rest}"

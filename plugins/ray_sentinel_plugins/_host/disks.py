"""Disks, from ``/proc/diskstats`` (kernel: Documentation/admin-guide/iostats.rst)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.api import Metric, Sample
from ray_sentinel.text import natural
from ray_sentinel_plugins._files import Files, clean, counter

SECTOR = 512
"""Bytes of a sector as the file counts them, whatever the disk's own sectors are."""
MAX_DISKS = 512
"""Most disks that get series."""
_LAYERED = re.compile(r"(loop|ram|zram|dm-|md|bcache|zd|sr|fd|drbd|nvme\d+c\d+n)\d")
"""Names of devices whose bytes are counted again by the disks under them, or that are no disks:
loop and RAM disks, device mapper (LVM, multipath, crypt), software RAID, bcache, ZFS volumes,
drives for media, DRBD, and the single paths of an NVMe multipath disk."""

READ = Metric("hw_disk_read_bytes_total", "counter", "Bytes read.", ("device",))
WRITTEN = Metric("hw_disk_written_bytes_total", "counter", "Bytes written.", ("device",))
IO_SECONDS = Metric(
    "hw_disk_io_seconds_total", "counter", "Time during which I/O was under way.", ("device",)
)
METRICS = (READ, WRITTEN, IO_SECONDS)


class DiskCounters(msgspec.Struct, frozen=True):
    """One line: bytes and milliseconds since boot."""

    read: int
    written: int
    busy_ms: int


def read(files: Files, proc: Path) -> Iterator[Sample]:
    """All samples of this subject: whole disks only, so that a sum over them is the machine's."""
    if not (text := files.text(path := proc / "diskstats")):
        return
    found = files.sound(path, parse_diskstats(text))
    disks = sorted(found.items(), key=lambda item: natural(item[0]))
    for name, disk in files.bounded(disks, MAX_DISKS, "/proc/diskstats"):
        device = clean(name)
        yield READ(disk.read, device)
        yield WRITTEN(disk.written, device)
        yield IO_SECONDS(disk.busy_ms / 1000, device)


def parse_diskstats(text: str) -> dict[str, DiskCounters]:
    """Whole disks by name. Lines of old kernels' partitions have 7 columns and fall out here."""
    found: dict[str, DiskCounters] = {}
    for line in text.splitlines():
        words = line.split()
        numbers = [counter(word) for word in words[3:14]]
        if len(numbers) < 11:
            continue
        sectors_read, sectors_written, busy = numbers[2], numbers[6], numbers[9]
        if sectors_read is None or sectors_written is None or busy is None:
            continue
        found[words[2]] = DiskCounters(sectors_read * SECTOR, sectors_written * SECTOR, busy)
    return {name: disk for name, disk in found.items() if whole_disk(name, found)}


def whole_disk(name: str, present: Collection[str]) -> bool:
    """Neither a layer over other disks nor a partition of a ``present`` disk.

    A partition is named after its disk and a number, with a ``p`` between where the disk's own name
    ends in a digit. On some clouds ``xvda1`` is a disk: there is no ``xvda``.

    >>> whole_disk("nvme0n1", {"nvme0n1"}), whole_disk("nvme0n1p2", {"nvme0n1"})
    (True, False)
    """
    if _LAYERED.match(name):
        return False
    bare = name.rstrip("0123456789")
    if bare == name:
        return True
    if bare.endswith("p") and bare[:-1] in present and bare[-2:-1].isdigit():
        return False
    return bare not in present

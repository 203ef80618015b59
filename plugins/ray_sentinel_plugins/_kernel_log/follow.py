"""Following /dev/kmsg: one record a read, by sequence number, never waiting."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import msgspec

from ray_sentinel_plugins._kernel_log.records import KernelRecord, parse_kmsg

RECORD_BYTES = 1 << 14
"""Bytes of the buffer for one record. The kernel's own limit is 8 kB; a buffer smaller than the
record is an error (EINVAL)."""
KMSG = os.makedev(1, 11)
"""Device number of /dev/kmsg (Documentation/admin-guide/devices.txt)."""
MAX_READS = 100_000
"""Most records that are read in one go; the rest is read the next time."""


class Batch(msgspec.Struct, frozen=True):
    """What was read: new records, and how many were overwritten before they could be."""

    records: list[KernelRecord]
    lost: int = 0


class KmsgFollower:
    """Reads the ring from its oldest record, then what comes after.

    ``next_sequence`` is the first record that was not read yet; None reads the whole ring.
    Raises OSError if the device cannot be opened (EPERM, EACCES: see ``kernel.dmesg_restrict``).
    """

    def __init__(self, path: Path, next_sequence: int | None = None) -> None:
        self.next_sequence = next_sequence
        self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def read(self) -> Batch:
        """All new records. Raises OSError if the device fails."""
        records: list[KernelRecord] = []
        lost = 0
        for _ in range(MAX_READS):
            try:
                data = os.read(self._handle, RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                # Records were overwritten since the last read: the next one is the oldest left.
                if error.errno == errno.EPIPE:
                    continue
                raise
            if not data:
                break
            record = parse_kmsg(data.decode("utf-8", "replace"))
            if record is None or record.sequence is None:
                continue
            if self.next_sequence is not None:
                if record.sequence < self.next_sequence:
                    continue
                lost += record.sequence - self.next_sequence
            self.next_sequence = record.sequence + 1
            records.append(record)
        return Batch(records, lost)

    def close(self) -> None:
        """Close the device."""
        os.close(self._handle)


def is_device(path: Path) -> bool:
    """A character device, as the live /dev/kmsg is; a captured tree has a file instead."""
    return _device(path) is not None


def is_kernel_log(path: Path) -> bool:
    """The kernel's own device: containers put /dev/null or /dev/console in its place."""
    return _device(path) == KMSG


def _device(path: Path) -> int | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_rdev if stat.S_ISCHR(status.st_mode) else None

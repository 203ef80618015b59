"""Keeps the coordinator within ``coordinator.memory_bytes``.

Once it uses more, garbage is collected that was left out until then (``garbage``). While it still
uses more, the engine is told every few seconds that memory is short, and drops what
verdicts do not need (``engine/shedding.py``). That is an event in its log: a replay drops the same
data at the same moment. The freed memory is returned to the system at once.

glibc's allocator gives a large block pages of its own, which go back when it is freed. What counts
as large grows with each such block that is freed, up to 32 MiB. Packed states would then lie among
the small arrays of series, and what they leave would be refilled here and there, so that hardly a
page of it went back: 15 MiB were held for 6 MiB of blocks. So the limit is fixed.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable

from ray_sentinel.actors.coordinator.garbage import collect_everything
from ray_sentinel.progress.proc.proc_stat import resident_bytes

log = logging.getLogger(__name__)

CHECK_SECONDS = 5.0
"""Seconds between two checks, so that one thing at most is dropped in this time."""
LARGE_BYTES = 1 << 20
"""Least bytes of a block that gets pages of its own, and most bytes that stay free at the end of a
heap."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From glibc's ``malloc.h``."""


class MemoryGuard:
    """Call ``step`` every ``CHECK_SECONDS``."""

    def __init__(
        self,
        most_bytes: int,
        free_memory: Callable[[], str],
        resident: Callable[[], int] = resident_bytes,
        collect: Callable[[], None] = collect_everything,
    ) -> None:
        """``free_memory`` drops something and returns what; "" if there is nothing left to drop.
        ``collect`` drops what nobody needs any more."""
        self._most = most_bytes
        self._free_memory = free_memory
        self._resident = resident
        self._collect = collect
        self._short = False
        self.exhausted = False
        """Whether too much memory is used, and nothing is left to drop."""

    def step(self) -> None:
        """Check the memory, and drop something if too much is used."""
        taken = self._resident()
        if taken > self._most and not self._short:
            self._collect()
            return_free_memory()
            taken = self._resident()
        self._short = taken > self._most
        part = self._free_memory() if taken > self._most else ""
        self.exhausted = taken > self._most and not part
        if part:
            log.warning(
                "memory is short (%d of %d MiB): less is kept of: %s",
                taken >> 20,
                self._most >> 20,
                part,
            )
            return_free_memory()


def return_free_memory() -> None:
    """Return the memory that the allocator holds in reserve to the system, where that is possible
    (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def fix_large_blocks() -> None:
    """Have the allocator treat blocks of ``LARGE_BYTES`` as large ones, whatever is freed later,
    where that is possible (glibc). It applies to the whole process."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_TRIM_THRESHOLD, LARGE_BYTES)
        set_option(_M_MMAP_THRESHOLD, LARGE_BYTES)

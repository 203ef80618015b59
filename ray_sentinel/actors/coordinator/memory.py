"""The coordinator's memory: garbage collections, and less that is kept where too much is used."""

from __future__ import annotations

import ctypes
import gc
import logging
from collections.abc import Callable

from ray_sentinel.progress.proc.proc_stat import resident_bytes

# Python's garbage collection in the coordinator, paced so that it holds nothing up for long.
#
# A full collection examines every object that may be part of a cycle, while no other thread runs:
# 730,000 objects with 8,192 ranks on 1,024 nodes, nearly all of them series of nodes that stay, in
# 0.2 s of CPU. By itself Python does that each time a quarter more objects have come, which reports
# bring within seconds. But reference counts free almost all of ours, because records have no
# cycles; what is left is the odd exception or future. So full collections happen here only, once a
# minute, and what survives one is left out of those that follow: 58,000 objects and 0.03 s remain.
# Once an hour everything is examined, in case what was left out has become garbage in a cycle.

COLLECT_SECONDS = 60.0
"""Seconds between two calls of ``step``."""
WHOLE_TURNS = 60
"""Number of turns after which everything is examined."""
_NEVER = 1 << 30
"""More collections of younger objects than there will be, so that no full one follows them."""


class GarbageCollection:
    """Makes the process's full collections. Call ``step`` every ``COLLECT_SECONDS``."""

    def __init__(self) -> None:
        self._turn = 0

    def step(self) -> None:
        """Collect; with the first call only leave out what there is, which are mostly modules."""
        if self._turn == 0:
            young, middle, *_ = gc.get_threshold()
            gc.set_threshold(young, middle, _NEVER)
        else:
            if self._turn % WHOLE_TURNS == 0:
                gc.unfreeze()
            gc.collect()
        gc.freeze()
        self._turn += 1


def collect_everything() -> None:
    """Collect also what full collections have left out; it takes as long as one of Python's own."""
    gc.unfreeze()
    gc.collect()


# Keeps the coordinator within ``coordinator.memory_bytes``.
#
# Once it uses more, garbage is collected that was left out until then. While it still uses more,
# the engine is told every few seconds that memory is short, and drops what verdicts do not need
# (``engine/shedding.py``). That is an event in its log: a replay drops the same data at the same
# moment. The freed memory is returned to the system at once.
#
# glibc's allocator gives a large block pages of its own, which go back when it is freed. What
# counts as large grows with each such block that is freed, up to 32 MiB. Packed states would then
# lie among the arrays of series, and what they leave would be refilled here and there, so
# that hardly a page of it went back: 15 MiB were held for 6 MiB of blocks. So the limit is fixed.

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

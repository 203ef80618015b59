"""The binary layout of a rank's heartbeat record, version 1.

A record is one file of 8 KiB in shared memory, written by one process and read by others while it
runs, stands still or is dead. Numbers are in the machine's own byte order, because it never leaves
the machine, and each is at a multiple of 8 bytes, so that it is stored in one piece. Times are
``CLOCK_MONOTONIC`` seconds: a set wall clock or a suspended machine changes no age.

======= ===== ====================================================================================
offset  bytes what
======= ===== ====================================================================================
0       96    header, written once: magic, version, size, pid, start (clock ticks since boot), when
              it was made (monotonic, Unix), boot id, pid of the raylet above it, PID namespace
128     32    the companion's stamp, its tid, the tid of the thread that calls step(), watchdog
160     16    request word (written by a reader), answer word (written by the companion)
192     136   scalars: 16 doubles, in the order of the names block
512     1280  steps: a ring of 32 entries of 40 bytes
2048    5120  blocks: phase, identity, last words, scalar names; each in two slots
======= ===== ====================================================================================

**Torn reads.** Each entry begins and ends with its count, and each slot with its sequence number;
the writer stores from low to high addresses. A reader copies twice and takes what is equal in both
copies with equal ends. The writer never touches the newest whole entry: steps go around a ring, and
blocks alternate between two slots, so even a writer stopped in the middle of a store leaves the
one before readable.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple

MAGIC = 0x314C544E53594152
"""The bytes ``RAYSNTL1`` as a number on a little-endian machine. In another byte order it is
another number, and the record is refused."""

VERSION = 1
SIZE = 8192

HEADER = struct.Struct("@QQQQQddQQQ")
STAMP_OFFSET = 128
STAMP = struct.Struct("@d")
STAMP_INTERVAL = 0.5
"""Seconds between two stamps of a companion that runs."""
NUMBER = struct.Struct("@Q")
COMPANION_TID_OFFSET = 136
STEPPING_TID_OFFSET = 144
WATCHDOG_OFFSET = 152
REQUEST_OFFSET = 160
ANSWER_OFFSET = 168
SCALARS_OFFSET = 192
SCALARS = struct.Struct("@16d")
MAX_SCALARS = 16
STEPS_OFFSET = 512
STEP = struct.Struct("@QqddQ")
STEPS = 32
SLOT_HEAD = struct.Struct("@QQ")


class RecordHeader(NamedTuple):
    """What never changes in a record."""

    magic: int
    version: int
    size: int
    pid: int
    start: int
    made_monotonic: float
    made_at: float
    boot: int
    raylet: int
    pid_namespace: int


class RecordedStep(NamedTuple):
    """One call of ``step()``. ``seconds`` is NaN if no step was finished before it."""

    calls: int
    step: int
    ended: float
    seconds: float
    calls_again: int


class DoubleBuffer(NamedTuple):
    """Rarely written bytes, in two slots that take turns."""

    offset: int
    slot: int

    @property
    def capacity(self) -> int:
        """How many bytes fit."""
        return self.slot - SLOT_HEAD.size - NUMBER.size


PHASE = DoubleBuffer(2048, 256)
IDENTITY = DoubleBuffer(2560, 1024)
WORDS = DoubleBuffer(4608, 768)
NAMES = DoubleBuffer(6144, 1024)


def step_offset(count: int) -> int:
    """Where the ``count``-th call of ``step()`` is written."""
    return STEPS_OFFSET + (count % STEPS) * STEP.size


def store(buffer: bytearray | mmap, block: DoubleBuffer, sequence: int, data: bytes) -> None:
    """Write ``data`` as the block's ``sequence``-th content (from 1); ValueError if too long."""
    if len(data) > block.capacity:
        raise ValueError(f"{len(data)} bytes do not fit into a block of {block.capacity}")
    start = block.offset + (sequence % 2) * block.slot
    SLOT_HEAD.pack_into(buffer, start, sequence, len(data))
    body = start + SLOT_HEAD.size
    buffer[body : body + len(data)] = data
    NUMBER.pack_into(buffer, start + block.slot - NUMBER.size, sequence)


def load(first: bytes, second: bytes, block: DoubleBuffer) -> tuple[int, bytes] | None:
    """The newest complete content of a block and its sequence number, from two copies.

    None if it was never written.
    """
    best: tuple[int, bytes] | None = None
    for start in (block.offset, block.offset + block.slot):
        end = start + block.slot
        slot = first[start:end]
        sequence, length = SLOT_HEAD.unpack_from(slot)
        if sequence == 0 or length > block.capacity or slot != second[start:end]:
            continue
        if NUMBER.unpack_from(slot, block.slot - NUMBER.size)[0] != sequence:
            continue
        if best is None or sequence > best[0]:
            best = (sequence, slot[SLOT_HEAD.size : SLOT_HEAD.size + length])
    return best


def load_steps(first: bytes, second: bytes) -> Iterator[RecordedStep]:
    """The complete entries of the ring, from two copies, in no order."""
    for start in range(STEPS_OFFSET, STEPS_OFFSET + STEPS * STEP.size, STEP.size):
        step = RecordedStep._make(STEP.unpack_from(first, start))
        if step.calls == 0 or step.calls != step.calls_again:
            continue
        if step_offset(step.calls) == start and (
            first[start : start + STEP.size] == second[start : start + STEP.size]
        ):
            yield step

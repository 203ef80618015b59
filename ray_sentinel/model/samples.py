"""Samples on their way from a node to the coordinator: a table of keys once, then only values.

Series that are sampled together form a stream. Its sender numbers the series in the order in which
it met them; the receiver states with each answer how much of that table it has (``TableHeld``), so
after a lost message or a restart of the receiver the missing keys, or all of them, are sent again.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, cast

import msgspec

from ray_sentinel.model.metrics import Labels

if TYPE_CHECKING:
    _Array = array[float]
else:
    _Array = array

ABSENT_BYTES = bytes.fromhex("a50a00000000f87f")
"""The bytes of a series that has no value now, lowest byte first: a quiet NaN that no arithmetic
produces."""
(ABSENT,) = struct.unpack("<d", ABSENT_BYTES)
WHOLE_SECONDS = 600.0
"""Seconds after which the whole table is sent again, whoever has it: a replay of a log can begin
anywhere."""

StreamName = Literal["rules", "history"]
"""``rules``: the key series, which the history has too; ``history``: the others."""


class Floats(_Array):
    """Numbers of eight bytes each; packed, they are those bytes in little-endian order."""

    __slots__ = ()

    def __new__(cls, values: Iterable[float] | bytes = ()) -> Floats:
        return cast("Floats", super().__new__(cls, "d", values))

    def __eq__(self, other: object) -> bool:
        # Two arrays in which the same value is absent (a NaN) are equal.
        return isinstance(other, Floats) and self.tobytes() == other.tobytes()

    __hash__ = None

    def packed(self) -> bytes:
        """The bytes that ``unpacked`` accepts."""
        return self.tobytes() if sys.byteorder == "little" else _swapped(self).tobytes()

    @classmethod
    def unpacked(cls, data: bytes) -> Floats:
        """The numbers in such bytes. Raises ValueError if their length is not a multiple of
        eight."""
        found = cls(data)
        return found if sys.byteorder == "little" else _swapped(found)


def _swapped(floats: Floats) -> Floats:
    copy = Floats(floats)
    copy.byteswap()
    return copy


def is_absent(value: float) -> bool:
    """Whether it represents a missing value; any other NaN is a value that was not a number."""
    return value != value and struct.pack("<d", value) == ABSENT_BYTES


class SeriesKey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The identity of one series among those of a node."""

    name: str
    labels: Labels = ()


class SampleBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one stream at one moment."""

    stream: StreamName
    sender: str
    """An id that differs with every start of the sender."""
    number: int
    """The number of the batch, counted by the sender: a batch that comes late is ignored."""
    table: int
    """The number of the table of keys to which the values belong; a sender begins another one to
    drop old keys."""
    known: int = 0
    """How many of the table's keys were sent before; with 0, ``keys`` is the whole table."""
    keys: tuple[SeriesKey, ...] = ()
    """The keys that follow these."""
    values: bytes = b""
    """One number of eight bytes for each key of the table (``Floats.packed``)."""


class TableHeld(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a stream's key table a receiver has."""

    sender: str
    table: int
    size: int


class SampleSender:
    """Makes the batches of one stream."""

    def __init__(self, stream: StreamName, sender: str) -> None:
        self.stream, self._sender = stream, sender
        self._places: dict[SeriesKey, int] = {}
        self._table = self._number = 0
        self._whole_at = float("-inf")

    def batch(
        self, values: Mapping[SeriesKey, float], held: TableHeld | None, now: float
    ) -> SampleBatch:
        """The batch of ``values``, for a receiver that has ``held``; ``now`` must not decrease."""
        new = [key for key in values if key not in self._places]
        if len(self._places) + len(new) > len(values) + len(values) // 4 + 8:
            self._places, self._table, new = {}, self._table + 1, list(values)
        for key in new:
            self._places[key] = len(self._places)
        row = Floats((ABSENT,) * len(self._places))
        for key, value in values.items():
            row[self._places[key]] = value
        known = self._known(held) if now - self._whole_at < WHOLE_SECONDS else 0
        if not known:
            self._whole_at = now
        self._number += 1
        return SampleBatch(
            stream=self.stream,
            sender=self._sender,
            number=self._number,
            table=self._table,
            known=known,
            keys=tuple(self._places)[known:],
            values=row.packed(),
        )

    def _known(self, held: TableHeld | None) -> int:
        if held is None or (held.sender, held.table) != (self._sender, self._table):
            return 0
        return min(held.size, len(self._places))

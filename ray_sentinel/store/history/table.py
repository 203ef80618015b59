"""Rows of one layout of a history as arrays, and how older ones are reduced and packed.

A row is what one host said at one moment, or a cell of some seconds up to that moment. Blocks of
``CELLS`` cells a host hold the older rows of one family: values (hosts, columns, cells), NaN where
nothing is there and ±inf where it was no finite number, each stored as the exclusive or with the
value before, their bytes sorted by significance, deflated (T. Pelkonen et al., "Gorilla: a fast,
scalable, in-memory time series database", VLDB 2015, has the first; HDF5's shuffle filter the
second).

These twenty lines stay because they were measured (``bench/history.py --formats``; 3.5 million
values of 8 nodes, a third each noise, counters and constants):

=============================== =============== =====================
stored in SQLite as             bytes a value   CPU seconds a million
=============================== =============== =====================
a row for each value            21.7            1.2
zlib, 60 values of a series     3.5             0.37
such a block, all hosts         2.2             0.14
=============================== =============== =====================
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from ray_sentinel.diagnose.series import Bools, Floats, Reduce

CELLS = 60
"""Number of cells of a block."""
LEVEL = 4
"""Compression level of zlib: higher ones are slower and save little."""
MEAN_BITS = 20
"""Bits of a mean's fraction that are kept, a millionth of its value: the rest is noise and does not
pack."""
MOST_BLOCK_BYTES = 128 << 20
"""Most bytes of an unpacked block: twice what all the nodes that a coordinator listens to can fill.
A larger one is refused."""

BITS = np.uint64
ABSENT = 0x7FF0000000000002
"""The bits that stand for a value that a row does not have. No arithmetic yields this NaN, so it is
told from samples that are NaN."""

Rule = tuple[Reduce, ...]
"""How each column of a table is reduced."""


class HistoryTable(msgspec.Struct, frozen=True):
    """Rows: ``hosts`` (R,) by their numbers, ``times`` (R,), ``values`` (R, C)."""

    hosts: NDArray[np.int64]
    times: Floats
    values: Floats

    @classmethod
    def of(cls, rows: Sequence[tuple[int, float, bytes]], columns: int) -> HistoryTable:
        """A table of (host, time, values) rows. Rows of another length are left out."""
        rows = [row for row in rows if len(row[2]) == 8 * columns]
        return cls(
            np.array([row[0] for row in rows], dtype=np.int64),
            np.array([row[1] for row in rows], dtype=np.float64),
            np.frombuffer(b"".join(row[2] for row in rows)).reshape(len(rows), columns),
        )

    def columns(self, places: Sequence[int] | NDArray[np.intp]) -> HistoryTable:
        """Some of the columns."""
        return HistoryTable(self.hosts, self.times, self.values[:, np.asarray(places)])

    def rows(self, chosen: Bools) -> HistoryTable:
        """Some of the rows."""
        return HistoryTable(self.hosts[chosen], self.times[chosen], self.values[chosen])

    def is_there(self) -> Bools:
        """(R, C) which values are present."""
        return np.asarray(np.ascontiguousarray(self.values).view(BITS) != ABSENT)


def stacked(tables: Sequence[HistoryTable]) -> HistoryTable:
    """The rows of all of them, which have the same columns, by host, then time."""
    hosts = np.concatenate([table.hosts for table in tables])
    times = np.concatenate([table.times for table in tables])
    order = np.lexsort((times, hosts))
    values = np.concatenate([table.values for table in tables])
    return HistoryTable(hosts[order], times[order], values[order])


def reduced(table: HistoryTable, step: float, rule: Rule) -> HistoryTable:
    """One row for each host and cell of ``step`` seconds, at the right end of the cell.

    The input are ``stacked`` rows. Values that were not finite numbers become infinite.
    """
    cells = np.ceil(table.times / step)
    change = (np.diff(cells) != 0) | (np.diff(table.hosts) != 0)
    starts = np.flatnonzero(np.concatenate([[True], change])[: cells.size])
    values = _plain(table.values)
    out = np.empty((starts.size, values.shape[1]))
    for kind in sorted(set(rule)) if starts.size else ():
        columns = np.flatnonzero([one == kind for one in rule])
        out[:, columns] = _grouped(values[:, columns], starts, kind)
    return HistoryTable(table.hosts[starts], cells[starts] * step, _marked(out))


def _plain(values: Floats) -> Floats:
    """NaN where nothing is there, ±inf where it is no finite number, as in a grid."""
    absent = np.ascontiguousarray(values).view(BITS) == ABSENT
    return np.where(absent, np.nan, np.where(np.isnan(values), np.inf, values))


def _marked(values: Floats) -> Floats:
    """The reverse of ``_plain``."""
    return np.where(np.isnan(values), BITS(ABSENT), values.view(BITS)).view(np.float64)


def _grouped(rows: Floats, starts: NDArray[np.intp], kind: Reduce) -> Floats:
    """Each run of rows, from a start to the next, as one."""
    there = ~np.isnan(rows)
    if kind == "avg":
        with np.errstate(invalid="ignore"):
            total = np.add.reduceat(np.where(there, rows, 0.0), starts, axis=0)
            mean = total / np.maximum(np.add.reduceat(there, starts, axis=0, dtype=np.int64), 1)
        # Of +inf and -inf together there is no mean; it was not finite all the same.
        mean = np.where(np.isnan(mean), np.inf, mean)
        return np.where(np.logical_or.reduceat(there, starts, axis=0), mean, np.nan)
    if kind == "last":
        place = np.where(there, np.arange(len(rows))[:, None], -1)
        last = np.maximum.reduceat(place, starts, axis=0)
        found = np.take_along_axis(rows, np.maximum(last, 0), axis=0)
        return np.where(last >= 0, found, np.nan)
    pick = np.fmax if kind == "max" else np.fmin
    return np.asarray(pick.reduceat(rows, starts, axis=0))


def encode(table: HistoryTable, start: float, step: float, rule: Rule) -> tuple[bytes, bytes]:
    """The hosts and values of a block of ``reduced`` rows. Means are rounded."""
    hosts, at = np.unique(table.hosts, return_inverse=True)
    cells = np.rint((table.times - start) / step).astype(np.int64) - 1
    values = np.full((hosts.size, table.values.shape[1], CELLS), np.nan)
    values[at, :, cells] = _rounded(_plain(table.values), rule)
    bits = values.view(BITS)
    change = bits.copy()
    change[..., 1:] ^= bits[..., :-1]
    shuffled = np.ascontiguousarray(change).view(np.uint8).reshape(-1, 8).T
    return hosts.tobytes(), zlib.compress(np.ascontiguousarray(shuffled).tobytes(), LEVEL)


def decode(block: tuple[float, float, bytes, bytes], columns: int) -> HistoryTable:
    """The rows of a block (start, step, hosts, values) again.

    Raises ValueError if the bytes are not a block of ``columns`` columns.
    """
    start, step, hosts, values = block
    numbers = np.frombuffer(hosts, dtype=np.int64)
    size = 8 * numbers.size * columns * CELLS
    if size > MOST_BLOCK_BYTES:
        raise ValueError(f"a block of {size} bytes is none of ours")
    try:
        raw = zlib.decompressobj().decompress(values, size + 1)
    except zlib.error as error:
        raise ValueError(f"a block does not unpack: {error}") from None
    if len(raw) != size:
        raise ValueError("a block has another size than its hosts and columns")
    flat = np.frombuffer(raw, dtype=np.uint8).reshape(8, -1).T
    change = np.ascontiguousarray(flat).view(BITS).reshape(numbers.size, columns, CELLS)
    whole = np.bitwise_xor.accumulate(change, axis=2).view(np.float64).transpose(0, 2, 1)
    rows = np.ascontiguousarray(whole).reshape(-1, columns)
    times = np.tile(start + step * np.arange(1, CELLS + 1), numbers.size)
    table = HistoryTable(np.repeat(numbers, CELLS), times, _marked(rows))
    return table.rows(~np.isnan(rows).all(axis=1))


def _rounded(values: Floats, rule: Rule) -> Floats:
    out: Floats = values.copy()
    columns = np.flatnonzero([one == "avg" for one in rule])
    part = out[:, columns]
    fraction, exponent = np.frexp(part)
    scale = float(1 << MEAN_BITS)
    rounded = np.ldexp(np.round(fraction * scale) / scale, exponent)
    out[:, columns] = np.where(np.isfinite(part), rounded, part)
    return out

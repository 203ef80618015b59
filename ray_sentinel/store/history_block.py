"""Blocks: a family's older samples on a regular axis, all hosts of a layout in one array.

A block holds ``CELLS`` cells of ``step`` seconds after ``start``: cell i is what was said in
``(start + i*step, start + (i+1)*step]`` and bears the time of its right end. Values are (hosts,
columns, cells); NaN is "not there", ±inf is "was no finite number", as everywhere in a grid. They
are stored as the exclusive or with the value before, their bytes sorted by significance
(T. Pelkonen et al., "Gorilla: a fast, scalable, in-memory time series database", VLDB 2015, has the
first; HDF5's shuffle filter the second), deflated.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from ray_sentinel.diagnose.series import Floats, Reduce

CELLS = 60
"""Of one block."""
LEVEL = 4
"""Of zlib: higher ones are slower and save little."""
MEAN_BITS = 20
"""Of a mean's fraction, a millionth of its value, are kept: the rest is noise and does not pack."""

BITS = np.uint64
ABSENT = 0x7FF0000000000002
"""The bits of a value that is not there in a row. It is no NaN of arithmetic: those are samples."""

Rule = tuple[Reduce, ...]
"""How each column is reduced."""


class HistoryBlock(msgspec.Struct, frozen=True):
    """``values`` (H, C, cells) of the hosts ``hosts`` (H,), by their numbers."""

    start: float
    step: float
    hosts: NDArray[np.int64]
    values: Floats

    @property
    def times(self) -> Floats:
        """(cells,) the right ends of the cells."""
        return self.start + self.step * np.arange(1, self.values.shape[2] + 1)


def encode(block: HistoryBlock, rule: Rule) -> tuple[bytes, bytes]:
    """Hosts and values as bytes. Means are rounded."""
    bits = _rounded(block.values, rule).view(np.uint64)
    change = bits.copy()
    change[..., 1:] ^= bits[..., :-1]
    shuffled = np.ascontiguousarray(change).view(np.uint8).reshape(-1, 8).T
    return block.hosts.tobytes(), zlib.compress(np.ascontiguousarray(shuffled).tobytes(), LEVEL)


def decode(start: float, step: float, hosts: bytes, values: bytes) -> HistoryBlock:
    """The block again. Raises ValueError where the bytes are none."""
    try:
        raw = zlib.decompress(values)
    except zlib.error as error:
        raise ValueError(f"a block does not unpack: {error}") from None
    numbers = np.frombuffer(hosts, dtype=np.int64)
    flat = np.frombuffer(raw, dtype=np.uint8).reshape(8, -1).T
    change = np.ascontiguousarray(flat).view(np.uint64).reshape(numbers.size, -1, CELLS)
    whole = np.bitwise_xor.accumulate(change, axis=2).view(np.float64)
    return HistoryBlock(start, step, numbers, whole)


def plain(values: Floats) -> Floats:
    """A row's values as those of a grid: NaN is "not there", ±inf "no finite number"."""
    absent = values.view(BITS) == ABSENT
    return np.where(absent, np.nan, np.where(np.isnan(values), np.inf, values))


def gathered(
    start: float, step: float, hosts: NDArray[np.int64], times: Floats, rows: Floats, rule: Rule
) -> HistoryBlock:
    """Rows (R, C) of a host and a moment each as a block; rows outside of it are left out.

    NaN in ``rows`` is "not there", ±inf "not finite".
    """
    cells = np.ceil((times - start) / step - 1e-9).astype(np.int64) - 1
    inside = (cells >= 0) & (cells < CELLS)
    hosts, times, rows, cells = hosts[inside], times[inside], rows[inside], cells[inside]
    known = np.unique(hosts)
    place = np.searchsorted(known, hosts) * CELLS + cells
    order = np.lexsort((times, place))
    place, rows = place[order], rows[order]
    out = np.full((known.size * CELLS, rows.shape[1]), np.nan)
    if place.size:
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        for kind in sorted(set(rule)):
            columns = np.flatnonzero([one == kind for one in rule])
            out[np.ix_(place[starts], columns)] = _grouped(rows[:, columns], starts, kind)
    shaped = out.reshape(known.size, CELLS, -1).transpose(0, 2, 1)
    return HistoryBlock(start, step, known, np.ascontiguousarray(shaped))


def merged(blocks: Sequence[HistoryBlock], start: float, step: float, rule: Rule) -> HistoryBlock:
    """Blocks of equal or finer steps, all inside, as one; ``step`` is a multiple of theirs."""
    hosts = np.concatenate([np.repeat(one.hosts, CELLS) for one in blocks])
    times = np.concatenate([np.tile(one.times, one.hosts.size) for one in blocks])
    rows = np.concatenate(
        [one.values.transpose(0, 2, 1).reshape(-1, one.values.shape[1]) for one in blocks]
    )
    return gathered(start, step, hosts, times, rows, rule)


def _grouped(rows: Floats, starts: NDArray[np.int64], kind: Reduce) -> Floats:
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


def _rounded(values: Floats, rule: Rule) -> Floats:
    out = np.array(values, dtype=np.float64, order="C")
    columns = np.flatnonzero([one == "avg" for one in rule])
    part = out[:, columns]
    fraction, exponent = np.frexp(part)
    scale = float(1 << MEAN_BITS)
    rounded = np.ldexp(np.round(fraction * scale) / scale, exponent)
    out[:, columns] = np.where(np.isfinite(part), rounded, part)
    return out

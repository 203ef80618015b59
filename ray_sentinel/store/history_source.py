"""Reading an embedded history through the port of all time series."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ray_sentinel.diagnose.reduction import grows
from ray_sentinel.diagnose.series import (
    Grid,
    Reduce,
    Samples,
    Selector,
    axis,
    bucketed,
)
from ray_sentinel.errors import InputError
from ray_sentinel.store.history_block import CELLS, HistoryBlock, decode
from ray_sentinel.store.history_parts import (
    HistoryPart,
    HistoryTable,
    Key,
    joined,
    of_blocks,
    of_rows,
    spread,
)
from ray_sentinel.store.history_read import REMEDY, UNREADABLE, OpenFile
from ray_sentinel.store.keys import parse_key

CACHE_BYTES = 64 << 20
"""Of unpacked rows that are kept between two questions."""
_SPAN = "SELECT min(time), max(time) FROM moments WHERE typeof(time) = 'real'"
_STARTS = """SELECT step, min(start), max(start) FROM blocks
             WHERE typeof(start) = 'real' AND typeof(step) = 'real' GROUP BY step"""
# What a damaged file holds may be of any type.
_BLOCKS = """SELECT step, start, hosts, vals FROM blocks WHERE family = ? AND layout = ?
             AND start < ? AND start + step * ? >= ? AND typeof(start) = 'real'
             AND typeof(step) = 'real' AND typeof(hosts) = 'blob' AND typeof(vals) = 'blob'
             ORDER BY step, start"""
_ROWS = """SELECT host, time, vals FROM moments WHERE layout = ? AND typeof(host) = 'integer'
           AND typeof(time) = 'real' AND typeof(vals) = 'blob' ORDER BY host, time"""


class HistorySource:
    """Reads series from a history. Raises InputError where it cannot be read.

    A row or block that is damaged is left out, and ``notes`` says so.
    """

    def __init__(
        self, base: sqlite3.Connection, title: str, lock: threading.Lock | None = None
    ) -> None:
        self._base, self.title = base, title
        self.notes: list[str] = []
        self._lock = lock or threading.Lock()
        self._cache: dict[int, HistoryTable] = {}
        self._known: list[tuple[int, tuple[Key, ...]]] | None = None
        self._state: tuple[int, int] = (-1, -1)
        self._file: OpenFile | None = None
        tables = self._read("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._has_blocks = ("blocks",) in tables

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> HistorySource:
        """A history file, also while somebody writes it. Raises InputError where it is none."""
        file = OpenFile(Path(path))
        source = cls(file.base, str(path))
        source._file = file
        return source

    def families(self) -> tuple[str, ...]:
        return tuple(sorted({name for _, keys in self._layouts() for name, _ in keys}))

    def span(self) -> tuple[float, float] | None:
        ends = [*self._read(_SPAN)[0], *self._ends()]
        known = [float(end) for end in ends if end is not None]
        return (min(known), max(known)) if known else None

    def label_sets(self, name: str, start: float, end: float) -> list[dict[str, str]]:
        return [
            dict(parts[0].labels)
            for parts in self._series(Selector(name), start, end)
            if any(((part.times >= start) & (part.times <= end)).any() for part in parts)
        ]

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        found = []
        for parts in self._series(selector, start, end):
            series = joined(parts)
            inside = (series.times > start) & (series.times <= end)
            if inside.any():
                found.append(Samples(series.labels, series.times[inside], series.values[inside]))
        return found

    def query_range(
        self, selector: Selector, start: float, end: float, step: float, reduce: Reduce = "last"
    ) -> Grid:
        """As of any source. Where only coarser samples are kept, each stands for its whole time,
        and what counts up grows evenly in it."""
        times = axis(start, end, step)
        labels, rows = [], []
        # A coarse sample reaches into the range from after its end.
        reach = self._coarsest() + step
        for parts in self._series(selector, times[0] - step, times[-1] + reach):
            row = bucketed(joined(parts), times, step, reduce)
            for part in parts:
                if part.step > step:
                    spread(row, times, part, grows(selector.name))
            if not np.isnan(row).all():
                labels.append(parts[0].labels)
                rows.append(row)
        values = np.array(rows, dtype=np.float64).reshape(len(rows), times.size)
        return Grid(tuple(labels), times, values)

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()
        if self._file is not None:
            self._file.close()

    def _series(self, selector: Selector, start: float, end: float) -> list[list[HistoryPart]]:
        """The parts of each series that is meant, whatever layouts it was written in.

        Blocks that do not touch ``start`` to ``end`` are left out.
        """
        found: dict[tuple[tuple[str, str], ...], list[HistoryPart]] = {}
        hosts = {
            int(number): str(name) for number, name in self._read("SELECT id, name FROM hosts")
        }
        for number, keys in self._layouts():
            columns = [
                (place, labels)
                for place, (name, labels) in enumerate(keys)
                if name == selector.name
            ]
            if not columns:
                continue
            parts = of_rows(self._table(number, keys), columns, hosts)
            blocks = self._blocks(number, selector.name, len(columns), start, end)
            for part in (*of_blocks(blocks, columns, hosts), *parts):
                if selector.matches(part.labels):
                    found.setdefault(tuple(sorted(part.labels.items())), []).append(part)
        return [found[labels] for labels in sorted(found)]

    def _coarsest(self) -> float:
        if not self._has_blocks:
            return 0.0
        return float(self._read("SELECT max(step) FROM blocks")[0][0] or 0.0)

    def _blocks(
        self, layout: int, family: str, columns: int, start: float, end: float
    ) -> list[HistoryBlock]:
        """The blocks of a family that touch a time, by step, then time."""
        if not self._has_blocks:
            return []
        rows = self._some(_BLOCKS, (family, layout, end, CELLS, start))
        return [one for one in map(self._block, rows) if one and one.values.shape[1] == columns]

    def _block(self, row: tuple[Any, ...]) -> HistoryBlock | None:
        step, start, hosts, values = row
        try:
            return decode(start, step, hosts, values)
        except (ValueError, TypeError):
            self._damaged()
            return None

    def _ends(self) -> list[float]:
        """The first and the last cell of the blocks that hold anything."""
        starts = self._read(_STARTS) if self._has_blocks else []
        if not starts:
            return []
        first = min(start for _, start, _ in starts)
        wanted = {(step, last) for step, _, last in starts}
        wanted |= {(step, start) for step, start, _ in starts if start == first}
        query = "SELECT step, start, hosts, vals FROM blocks WHERE step = ? AND start = ?"
        ends: list[float] = []
        for place in wanted:
            for block in filter(None, map(self._block, self._some(query, place))):
                there = block.times[~np.isnan(block.values).all(axis=(0, 1))]
                ends += [float(there[0]), float(there[-1])] if there.size else []
        return ends

    def _damaged(self) -> None:
        note = f"a part of {self.title} is damaged and left out"
        if note not in self.notes:
            self.notes.append(note)

    def _fresh(self) -> None:
        """Forget what was read before the file changed."""
        state = (int(self._read("PRAGMA data_version")[0][0]), self._base.total_changes)
        if state != self._state:
            self._cache, self._known, self._state = {}, None, state

    def _layouts(self) -> list[tuple[int, tuple[Key, ...]]]:
        self._fresh()
        if self._known is None:
            rows = self._read("SELECT id, keys FROM layouts ORDER BY id")
            try:
                self._known = [(int(i), tuple(map(parse_key, json.loads(t)))) for i, t in rows]
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise InputError(f"{self.title} is damaged: {error}; {REMEDY}") from None
        return self._known

    def _table(self, number: int, keys: tuple[Key, ...]) -> HistoryTable:
        if number not in self._cache:
            rows = [row for row in self._some(_ROWS, (number,)) if len(row[2]) == 8 * len(keys)]
            table = HistoryTable(
                keys,
                np.array([host for host, _, _ in rows], dtype=np.int64),
                np.array([time for _, time, _ in rows], dtype=np.float64),
                np.frombuffer(b"".join(vals for _, _, vals in rows)).reshape(len(rows), len(keys)),
            )
            if sum(kept.values.nbytes for kept in self._cache.values()) > CACHE_BYTES:
                self._cache.clear()
            self._cache[number] = table
        return self._cache[number]

    def _read(self, query: str, values: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._base.execute(query, tuple(values)).fetchall()
            except UNREADABLE as error:
                raise InputError(f"{self.title} cannot be read: {error}; {REMEDY}") from None

    def _some(self, query: str, values: Iterable[object]) -> list[tuple[Any, ...]]:
        """The rows up to a damaged place."""
        rows: list[tuple[Any, ...]] = []
        with self._lock:
            try:
                rows.extend(self._base.execute(query, tuple(values)))
            except UNREADABLE:
                self._damaged()
        return rows

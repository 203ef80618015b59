"""Reading an embedded history through the port of all time series."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ray_sentinel.diagnose.series import Floats, Grid, Reduce, Samples, Selector, axis, bucketed
from ray_sentinel.errors import InputError
from ray_sentinel.store.keys import parse_key

BITS = np.uint64
ABSENT = 0x7FF0000000000002
"""The bits of a value that is not there. It is no NaN of arithmetic: those are samples."""
CACHE_BYTES = 64 << 20
"""Of unpacked rows that are kept between two questions."""


class Table(msgspec.Struct, frozen=True):
    """All rows of one layout, ordered by host, then time."""

    keys: tuple[tuple[str, dict[str, str]], ...]
    """(Name, labels) of each column."""
    hosts: NDArray[np.int64]
    times: Floats
    values: Floats
    """(rows, columns)."""


class HistorySource:
    """Reads series from a history. Raises InputError where it cannot be read."""

    def __init__(
        self, base: sqlite3.Connection, title: str, lock: threading.Lock | None = None
    ) -> None:
        self._base, self.title = base, title
        self.notes: list[str] = []
        self._lock = lock or threading.Lock()
        self._cache: dict[int, Table] = {}
        self._state: tuple[int, int] = (-1, -1)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> HistorySource:
        """A history file, also while somebody writes it. Raises InputError where it is none."""
        file = Path(path)
        if not file.is_file():
            raise InputError(f"{file}: there is no such file")
        try:
            base = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=10.0,
                                   check_same_thread=False)  # fmt: skip
            base.execute("SELECT id, keys FROM layouts LIMIT 1").fetchall()
            base.execute("SELECT layout, time, host, vals FROM moments LIMIT 1").fetchall()
        except sqlite3.DatabaseError as error:
            raise InputError(f"{file} is not a history of ours: {error}") from None
        return cls(base, str(file))

    def families(self) -> tuple[str, ...]:
        return tuple(sorted({name for _, keys in self._layouts() for name, _ in keys}))

    def span(self) -> tuple[float, float] | None:
        ends = self._read("SELECT min(time), max(time) FROM moments")[0]
        return (float(ends[0]), float(ends[1])) if ends[0] is not None else None

    def label_sets(self, name: str, start: float, end: float) -> list[dict[str, str]]:
        return [
            series.labels
            for series in self._series(Selector(name))
            if ((series.times >= start) & (series.times <= end)).any()
        ]

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        found = []
        for series in self._series(selector):
            inside = (series.times > start) & (series.times <= end)
            if inside.any():
                found.append(Samples(series.labels, series.times[inside], series.values[inside]))
        return found

    def query_range(
        self, selector: Selector, start: float, end: float, step: float, reduce: Reduce = "last"
    ) -> Grid:
        times = axis(start, end, step)
        series = self.samples(selector, float(times[0]) - step, float(times[-1]))
        values = [bucketed(one, times, step, reduce) for one in series]
        return Grid(
            tuple(one.labels for one in series),
            times,
            np.array(values, dtype=np.float64).reshape(len(series), times.size),
        )

    def copy_to(self, other: sqlite3.Connection) -> None:
        """Write all of it over what ``other`` holds."""
        try:
            self._base.backup(other)
        except sqlite3.Error as error:
            raise InputError(f"{self.title} cannot be read: {error}") from None

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    def _series(self, selector: Selector) -> list[Samples]:
        """All series that are meant, each once, whatever layouts it was written in."""
        parts: dict[tuple[tuple[str, str], ...], list[Samples]] = {}
        hosts = {
            int(number): str(name) for number, name in self._read("SELECT id, name FROM hosts")
        }
        for number, keys in self._layouts():
            if any(name == selector.name for name, _ in keys):
                for part in _columns(self._table(number, keys), selector, hosts):
                    parts.setdefault(tuple(sorted(part.labels.items())), []).append(part)
        return [_joined(parts[labels]) for labels in sorted(parts)]

    def _layouts(self) -> list[tuple[int, tuple[tuple[str, dict[str, str]], ...]]]:
        rows = self._read("SELECT id, keys FROM layouts ORDER BY id")
        try:
            return [(int(i), tuple(map(parse_key, json.loads(text)))) for i, text in rows]
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{self.title} is damaged: {error}") from None

    def _table(self, number: int, keys: tuple[tuple[str, dict[str, str]], ...]) -> Table:
        state = (int(self._read("PRAGMA data_version")[0][0]), self._base.total_changes)
        if state != self._state:
            self._cache, self._state = {}, state
        if number not in self._cache:
            query = "SELECT host, time, vals FROM moments WHERE layout = ? ORDER BY host, time"
            rows = [row for row in self._read(query, (number,)) if len(row[2]) == 8 * len(keys)]
            table = Table(
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
            except sqlite3.DatabaseError as error:
                raise InputError(f"{self.title} cannot be read: {error}") from None


def _columns(table: Table, selector: Selector, hosts: dict[int, str]) -> Iterator[Samples]:
    """The series of a table that are meant, one for each host and column."""
    numbers, starts = np.unique(table.hosts, return_index=True)
    ends = [*starts[1:], len(table.hosts)]
    for place, (name, labels) in enumerate(table.keys):
        if name != selector.name:
            continue
        for number, start, end in zip(numbers, starts, ends, strict=True):
            host = hosts.get(int(number), "")
            whole = {"host": host, **labels} if host else labels
            values = table.values[start:end, place]
            there = values.view(BITS) != ABSENT
            if there.any() and selector.matches(whole):
                yield Samples(dict(whole), table.times[start:end][there], values[there])


def _joined(parts: list[Samples]) -> Samples:
    if len(parts) == 1:
        return parts[0]
    times = np.concatenate([part.times for part in parts])
    order = np.argsort(times, kind="stable")
    values = np.concatenate([part.values for part in parts])
    return Samples(parts[0].labels, times[order], values[order])

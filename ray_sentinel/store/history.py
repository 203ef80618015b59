"""The embedded history: key series of a job in one SQLite file, or in memory.

For jobs without a Prometheus. The file is in WAL mode, each append is one transaction: what was
appended is still there after the writer was killed. It is bounded: when it reaches its size the
oldest tenth goes. In memory (no path) only the last half hour is kept.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ray_sentinel.diagnose.series import Grid, Reduce, Samples, Selector, axis, bucketed
from ray_sentinel.errors import InputError
from ray_sentinel.store.keys import parse_key, series_key

VERSION = 1
MAX_BYTES = 256 << 20
MEMORY_SECONDS = 1800.0
CHECK_EVERY = 64
"""Appends between two looks at the size."""
PRUNE_SHARE = 0.1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS series (id INTEGER PRIMARY KEY, key TEXT UNIQUE, name TEXT);
CREATE INDEX IF NOT EXISTS by_name ON series (name);
CREATE TABLE IF NOT EXISTS samples
  (series INTEGER, time REAL, value REAL, PRIMARY KEY (series, time)) WITHOUT ROWID;
"""


class History:
    """Writes series. Safe to call from several threads of one process; one writer a file."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_bytes: int = MAX_BYTES,
        keep_seconds: float | None = None,
    ) -> None:
        """``path`` None keeps the last ``keep_seconds`` (half an hour) in memory.

        Raises InputError where the file is no history and cannot be made one.
        """
        self.path = Path(path) if path is not None else None
        self.max_bytes = max_bytes
        memory_only = MEMORY_SECONDS if path is None else None
        self.keep_seconds = keep_seconds if keep_seconds is not None else memory_only
        self._lock = threading.Lock()
        self._ids: dict[str, int] = {}
        self._appended = 0
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        target = str(self.path) if self.path is not None else ":memory:"
        try:
            self._base = sqlite3.connect(target, check_same_thread=False, timeout=10.0)
            # Pages that pruning frees go back to the file system bit by bit.
            self._base.execute("PRAGMA auto_vacuum=INCREMENTAL")
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")
            self._base.executescript(_SCHEMA)
            self._base.execute(f"PRAGMA user_version={VERSION}")
            self._ids = dict(self._base.execute("SELECT key, id FROM series"))
        except sqlite3.DatabaseError as error:
            raise InputError(f"{target} cannot be used as a history: {error}") from None

    def append(self, time: float, host: str, gauges: Mapping[str, float]) -> None:
        """The values of one host at one moment (Unix seconds).

        Keys are ``name`` or ``name{label="value"}``; ``host`` is added as a label. A key that is
        no series raises ValueError and nothing is written.
        """
        keys = {self._with_host(key, host): value for key, value in gauges.items()}
        with self._lock, self._base:
            rows = [(self._id(key), time, float(value)) for key, value in keys.items()]
            self._base.executemany("INSERT OR REPLACE INTO samples VALUES (?, ?, ?)", rows)
            self._appended += 1
        if self._appended % CHECK_EVERY == 0:
            self.prune(time)

    def prune(self, now: float) -> None:
        """Drop what is too old or too much."""
        with self._lock:
            if self.keep_seconds is not None:
                self._drop_before(now - self.keep_seconds)
            if self.path is None or self._bytes() <= self.max_bytes:
                return
            first, last = self._base.execute("SELECT min(time), max(time) FROM samples").fetchone()
            if first is not None and last > first:
                self._drop_before(first + PRUNE_SHARE * (last - first))
                self._base.execute("PRAGMA incremental_vacuum").fetchall()
                self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def source(self) -> HistorySource:
        """The series for reading, through the same connection."""
        title = str(self.path) if self.path is not None else "the last half hour in memory"
        return HistorySource(self._base, title, self._lock)

    def close(self) -> None:
        """Fold the log into the file and let go of it."""
        with self._lock:
            self._base.close()

    def _with_host(self, key: str, host: str) -> str:
        name, labels = parse_key(key)
        return series_key(name, {"host": host, **labels} if host else labels)

    def _id(self, key: str) -> int:
        if key not in self._ids:
            cursor = self._base.execute(
                "INSERT INTO series (key, name) VALUES (?, ?)", (key, parse_key(key)[0])
            )
            self._ids[key] = int(cursor.lastrowid or 0)
        return self._ids[key]

    def _drop_before(self, moment: float) -> None:
        with self._base:
            for (series,) in self._base.execute("SELECT id FROM series").fetchall():
                self._base.execute(
                    "DELETE FROM samples WHERE series = ? AND time < ?", (series, moment)
                )

    def _bytes(self) -> int:
        pages = self._base.execute("PRAGMA page_count").fetchone()[0]
        free = self._base.execute("PRAGMA freelist_count").fetchone()[0]
        size = self._base.execute("PRAGMA page_size").fetchone()[0]
        return int((pages - free) * size)


class HistorySource:
    """Reads series from a history."""

    def __init__(
        self, base: sqlite3.Connection, title: str, lock: threading.Lock | None = None
    ) -> None:
        self._base, self.title = base, title
        self.notes: list[str] = []
        self._lock = lock or threading.Lock()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> HistorySource:
        """A history file, also while somebody writes it. Raises InputError where it is none."""
        file = Path(path)
        if not file.is_file():
            raise InputError(f"{file}: there is no such file")
        try:
            base = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=10.0,
                                   check_same_thread=False)  # fmt: skip
            base.execute("SELECT id, key, name FROM series LIMIT 1").fetchall()
            base.execute("SELECT series, time, value FROM samples LIMIT 1").fetchall()
        except sqlite3.DatabaseError as error:
            raise InputError(f"{file} is not a history of ours: {error}") from None
        return cls(base, str(file))

    def families(self) -> tuple[str, ...]:
        rows = self._read("SELECT DISTINCT name FROM series ORDER BY name")
        return tuple(str(name) for (name,) in rows)

    def span(self) -> tuple[float, float] | None:
        ends = self._read(
            "SELECT min(low), max(high) FROM (SELECT"
            " (SELECT min(time) FROM samples WHERE series = id) AS low,"
            " (SELECT max(time) FROM samples WHERE series = id) AS high FROM series)"
        )[0]
        return (float(ends[0]), float(ends[1])) if ends[0] is not None else None

    def label_sets(self, name: str, start: float, end: float) -> list[dict[str, str]]:
        rows = self._read(
            "SELECT key FROM series WHERE name = ? AND EXISTS"
            " (SELECT 1 FROM samples WHERE series = id AND time BETWEEN ? AND ?)",
            (name, start, end),
        )
        return [parse_key(key)[1] for (key,) in rows]

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        found = []
        for number, key in self._read(
            "SELECT id, key FROM series WHERE name = ? ORDER BY key", (selector.name,)
        ):
            labels = parse_key(key)[1]
            if not selector.matches(labels):
                continue
            pairs = self._read(
                "SELECT time, value FROM samples WHERE series = ? AND time > ? AND time <= ?"
                " ORDER BY time",
                (number, start, end),
            )
            if pairs:
                # SQLite keeps NaN as NULL.
                array = np.array(
                    [(t, np.nan if v is None else v) for t, v in pairs], dtype=np.float64
                )
                found.append(Samples(labels, array[:, 0], array[:, 1]))
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

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    def _read(self, query: str, values: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._base.execute(query, tuple(values)).fetchall()
            except sqlite3.DatabaseError as error:
                raise InputError(f"{self.title} cannot be read: {error}") from None

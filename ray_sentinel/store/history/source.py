"""Reading an embedded history through the port of all time series.

A file is read without a trace beside it and without disturbing its writer: where somebody writes it
or was killed while writing (there is a log, ``-wal``), a copy of file and log is read, and SQLite's
recovery writes into the copy. The file may be anybody's: it may hold our tables and nothing else
that SQLite would run, and what is read of it is bounded in time and in bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ray_sentinel.clock import LATEST
from ray_sentinel.diagnose.reduction import grows
from ray_sentinel.diagnose.series import (
    Bools,
    Floats,
    Grid,
    Reduce,
    Samples,
    Selector,
    axis,
    bucketed,
)
from ray_sentinel.errors import InputError
from ray_sentinel.store.history.keys import parse_key
from ray_sentinel.store.history.table import CELLS, HistoryTable, decode, stacked

TURNS = 8
"""Attempts to copy a file that changes meanwhile."""
QUERY_SECONDS = 60.0
"""Seconds that one query of the file may take."""
MOST_COPIED = 2 << 30
"""Most bytes of a file and its log that are copied: eight times what a coordinator keeps. A sparse
file may claim any size."""
MOST_KEYS_BYTES = 64 << 20
"""Most bytes of the keys of all layouts; a file with more is refused."""
MOST_VALUE_BYTES = 64 << 20
"""Most bytes of one value in the file: a block of the largest cluster is smaller."""
MOST_FAMILY_BYTES = 2 << 30
"""Most bytes of one family's samples that are unpacked at once."""
MOST_ROWS = 4_000_000
"""Most rows of one query: forty times those of a thousand nodes in half an hour."""
GAP = 1.5
"""Number of cells between two samples from which on there is a gap."""
REMEDY = (
    "another file of the folder history/, or `ray-sentinel triage` on the job's logs, may serve"
)
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""Exceptions that reading a damaged file raises: SQLite quotes the file in its messages, whatever
the bytes are."""
_MAGIC = b"SQLite format 3\0"
_TABLES = {
    "layouts": {"id", "keys"},
    "hosts": {"id", "name"},
    "moments": {"layout", "time", "host", "vals"},
    "blocks": {"family", "layout", "step", "start", "hosts", "vals"},
}
"""The columns that are read of each table."""
_SCHEMA = "SELECT type, name, rootpage FROM sqlite_master"
_SPAN = f"""SELECT min(time), max(time) FROM moments
            WHERE typeof(time) = 'real' AND time BETWEEN 0 AND {LATEST}"""
_STARTS = """SELECT step, min(start), max(start) FROM blocks
             WHERE typeof(start) = 'real' AND typeof(step) = 'real' GROUP BY step"""
# What a damaged file holds may be of any type.
_WHOLE = """typeof(start) = 'real' AND typeof(step) = 'real' AND typeof(hosts) = 'blob'
            AND typeof(vals) = 'blob'"""
_BLOCKS = f"""SELECT start, step, hosts, vals FROM blocks WHERE family = ? AND layout = ?
              AND start <= ? AND start + step * ? >= ? AND {_WHOLE}"""
_BLOCKS_AT = f"""SELECT layout, start, step, hosts, vals FROM blocks
                 WHERE step = ? AND start = ? AND {_WHOLE}"""
_ROWS = """SELECT host, time, substr(vals, ?, ?) FROM moments
           WHERE layout = ? AND time BETWEEN ? AND ? AND typeof(host) = 'integer'
           AND typeof(time) = 'real' AND typeof(vals) = 'blob' AND length(vals) = ?"""

Key = tuple[str, dict[str, str]]
"""Name and labels of a series."""


class HistoryPart(msgspec.Struct, frozen=True):
    """Samples of one series that were kept at the same resolution."""

    labels: dict[str, str]
    times: Floats
    values: Floats
    step: float
    """Seconds that each sample stands for, up to its time; 0 for samples that are kept as they
    came."""


class HistorySource:
    """Reads series from a history. Raises InputError if it cannot be read.

    A damaged row or block is left out, and ``notes`` say so.
    """

    def __init__(self, base: sqlite3.Connection, title: str, copy: contextlib.ExitStack) -> None:
        """``copy`` removes the copy of the file that ``base`` reads, if it is one."""
        self._base, self.title, self._copy = base, title, copy
        self.notes: list[str] = []
        self._lock = threading.Lock()
        self._keys: dict[str, tuple[Key, ...]] = {}
        self._deadline = np.inf
        base.set_progress_handler(self._is_late, 100_000)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> HistorySource:
        """A history file, even while it is being written. Raises InputError if it is not one."""
        file = Path(path)
        _check_header(file)
        with contextlib.ExitStack() as copy:
            try:
                base = _connected(file, copy)
            except UNREADABLE as error:
                raise InputError(f"{file} is not a history of ours: {error}; {REMEDY}") from None
            except OSError as error:
                raise InputError(
                    f"{file} cannot be copied to {tempfile.gettempdir()} to be read: {error}; "
                    "TMPDIR may name a folder that has room"
                ) from None
            return cls(base, str(path), copy.pop_all())

    def families(self) -> tuple[str, ...]:
        """As for any source."""
        return tuple(sorted({name for _, keys in self._layouts() for name, _ in keys}))

    def span(self) -> tuple[float, float] | None:
        """As for any source."""
        ends = [*self._read(_SPAN)[0], *self._ends()]
        known = [float(end) for end in ends if end is not None]
        return (min(known), max(known)) if known else None

    def label_sets(self, name: str, start: float, end: float) -> list[dict[str, str]]:
        """As for any source."""
        return [
            dict(parts[0].labels)
            for parts in self._series(Selector(name), start, end)
            if any(((part.times >= start) & (part.times <= end)).any() for part in parts)
        ]

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        """As for any source."""
        found = []
        for parts in self._series(selector, start, end):
            series = _joined(parts)
            inside = (series.times > start) & (series.times <= end)
            if inside.any():
                found.append(Samples(series.labels, series.times[inside], series.values[inside]))
        return found

    def query_range(
        self, selector: Selector, start: float, end: float, step: float, reduce: Reduce = "last"
    ) -> Grid:
        """As for any source. If only coarser samples are kept, each stands for its whole time, and
        counters rise evenly within it."""
        times = axis(start, end, step)
        labels, rows = [], []
        # A coarse sample reaches into the range from after its end.
        reach = step + float(self._read("SELECT max(step) FROM blocks")[0][0] or 0.0)
        for parts in self._series(selector, times[0] - step, times[-1] + reach):
            row = bucketed(_joined(parts), times, step, reduce)
            for part in parts:
                if part.step > step:
                    _spread(row, times, part, grows(selector.name))
            if not np.isnan(row).all():
                labels.append(parts[0].labels)
                rows.append(row)
        values = np.array(rows, dtype=np.float64).reshape(len(rows), times.size)
        return Grid(tuple(labels), times, values)

    def close(self) -> None:
        """Close the file, and remove the copy if there is one."""
        self._base.close()
        self._copy.close()

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def _series(self, selector: Selector, start: float, end: float) -> list[list[HistoryPart]]:
        """The parts of each requested series, in whatever layouts it was written.

        Blocks that do not touch ``start`` to ``end`` are left out.
        """
        found: dict[tuple[tuple[str, str], ...], list[HistoryPart]] = {}
        names = self._read("SELECT id, name FROM hosts")
        hosts = {int(number): str(name) for number, name in names}
        for number, keys in self._layouts():
            places = [place for place, key in enumerate(keys) if key[0] == selector.name]
            if not places:
                continue
            labels = [keys[place][1] for place in places]
            blocks = self._blocks(number, selector.name, len(keys), start, end)
            tables = [(step, blocks[step].columns(places)) for step in sorted(blocks)]
            tables.append((0.0, self._rows(number, places, len(keys), start, end)))
            for step, table in tables:
                for part in _parts(table, step, labels, hosts):
                    if selector.matches(part.labels):
                        found.setdefault(tuple(sorted(part.labels.items())), []).append(part)
        return [found[labels] for labels in sorted(found)]

    def _rows(
        self, layout: int, places: list[int], columns: int, start: float, end: float
    ) -> HistoryTable:
        """Rows as they came."""
        first, width = places[0], places[-1] + 1 - places[0]
        place = (8 * first + 1, 8 * width, layout, start, end, 8 * columns)
        table = HistoryTable.of(self._some(_ROWS, place), width)
        return stacked([table.columns([place - first for place in places])])

    def _blocks(
        self, layout: int, family: str, columns: int, start: float, end: float
    ) -> dict[float, HistoryTable]:
        """The blocks of a family that touch a time, by their step."""
        found: dict[float, list[HistoryTable]] = {}
        room = MOST_FAMILY_BYTES
        query = (family, layout, end, CELLS, start)
        for row in self._some(_BLOCKS, query):
            for table in self._unpacked(row, columns):
                found.setdefault(row[1], []).append(table)
                room -= table.values.nbytes
            if room < 0:
                raise InputError(f"{self.title} holds more of {family} than can be read; {REMEDY}")
        return {step: stacked(tables) for step, tables in found.items()}

    def _unpacked(self, block: Any, columns: int) -> list[HistoryTable]:
        """The block, if it is whole."""
        try:
            return [decode(block, columns)]
        except (ValueError, TypeError):
            self._damaged()
            return []

    def _ends(self) -> list[float]:
        """The first and the last cell of the blocks that hold anything."""
        starts = self._read(_STARTS)
        first = min((start for _, start, _ in starts), default=0.0)
        wanted = {(step, last) for step, _, last in starts}
        wanted |= {(step, start) for step, start, _ in starts if start == first}
        columns = {number: len(keys) for number, keys in self._layouts()}
        ends: list[float] = []
        for place in wanted:
            for layout, *block in self._some(_BLOCKS_AT, place):
                for table in self._unpacked(block, columns.get(layout, 0)):
                    ends += [*table.times[:1], *table.times.max(initial=-np.inf, keepdims=True)]
        return [float(end) for end in ends if 0 <= end < LATEST]

    def _damaged(self) -> None:
        note = f"a part of {self.title} is damaged and left out"
        if note not in self.notes:
            self.notes.append(note)

    def _layouts(self) -> list[tuple[int, tuple[Key, ...]]]:
        (size,) = self._read("SELECT sum(length(keys)) FROM layouts")[0]
        if size is not None and size > MOST_KEYS_BYTES:
            raise InputError(f"{self.title} names more series than can be read; {REMEDY}")
        found = []
        for number, text in self._read("SELECT id, keys FROM layouts ORDER BY id"):
            try:
                if text not in self._keys:
                    self._keys[text] = tuple(map(parse_key, json.loads(text)))
                found.append((int(number), self._keys[text]))
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise InputError(f"{self.title} is damaged: {error}; {REMEDY}") from None
        return found

    def _read(self, query: str) -> list[tuple[Any, ...]]:
        """All rows. Raises InputError."""
        with self._lock:
            try:
                self._deadline = time.monotonic() + QUERY_SECONDS
                return self._base.execute(query).fetchmany(MOST_ROWS)
            except UNREADABLE as error:
                raise InputError(f"{self.title} cannot be read: {error}; {REMEDY}") from None

    def _some(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        """The rows up to a damaged place."""
        rows: list[tuple[Any, ...]] = []
        with self._lock:
            try:
                self._deadline = time.monotonic() + QUERY_SECONDS
                rows.extend(itertools.islice(self._base.execute(query, values), MOST_ROWS))
            except UNREADABLE as error:
                if self._is_late():
                    raise InputError(f"{self.title} takes too long: {error}; {REMEDY}") from None
                self._damaged()
        return rows


def _parts(
    table: HistoryTable, step: float, labels: list[dict[str, str]], hosts: dict[int, str]
) -> Iterator[HistoryPart]:
    """The series of a table, one for each host and column."""
    there = table.is_there()
    numbers, starts = np.unique(table.hosts, return_index=True)
    ends = [*starts[1:], len(table.hosts)]
    for place, own in enumerate(labels):
        for number, start, end in zip(numbers, starts, ends[: len(starts)], strict=True):
            known = there[start:end, place]
            if known.any():
                host = hosts.get(int(number), "")
                whole = {"host": host, **own} if host else own
                values = table.values[start:end, place][known]
                yield HistoryPart(whole, table.times[start:end][known], values, step)


def _joined(parts: list[HistoryPart]) -> Samples:
    times = np.concatenate([part.times for part in parts])
    order = np.argsort(times, kind="stable")
    values = np.concatenate([part.values for part in parts])
    return Samples(parts[0].labels, times[order], values[order])


def _spread(row: Floats, times: Floats, part: HistoryPart, growing: bool) -> None:
    """Fill cells of ``row`` that no sample fell into from the coarse one for them."""
    at = np.minimum(np.searchsorted(part.times, times, "left"), part.times.size - 1)
    covered: Bools = (
        np.isnan(row) & (part.times[at] >= times) & (times > part.times[at] - part.step)
    )
    at, moments = at[covered], times[covered]
    values = part.values[at]
    if growing:
        before = np.maximum(at - 1, 0)
        width = part.times[at] - part.times[before]
        rise = part.values[at] - part.values[before]
        # After a gap or a reset nothing is known of the way.
        known = (width > 0) & (width < GAP * part.step) & (rise >= 0)
        share = np.where(known, (part.times[at] - moments) / np.maximum(width, part.step), 0.0)
        values = values - np.where(known, rise, 0.0) * share
    row[covered] = values


def _check_header(file: Path) -> None:
    """Raises InputError if it does not begin as a file of SQLite's does, or is none that can be
    read: a FIFO has no end, and to read a device may do something."""
    try:
        for one in (file, beside(file)[0]):
            if one.exists() and not one.is_file():
                raise InputError(f"{one} is no regular file; {REMEDY}")
        with file.open("rb") as stream:
            begins = stream.read(len(_MAGIC))
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    if begins != _MAGIC and (begins or not beside(file)[0].exists()):
        raise InputError(f"{file} is not a history of ours: it is no SQLite file; {REMEDY}")


def _connected(file: Path, copy: contextlib.ExitStack) -> sqlite3.Connection:
    """The file, or a copy that goes with ``copy``. Raises OSError and what is UNREADABLE."""
    how = "?mode=ro&immutable=1"
    # Without a log nobody writes: no lock is needed, and none is made in a folder of others.
    if beside(file)[0].exists():
        folder = copy.enter_context(tempfile.TemporaryDirectory(prefix="ray_sentinel-"))
        file, how = copied(file, Path(folder)), ""
    uri = f"{file.absolute().as_uri()}{how}"
    base = sqlite3.connect(uri, uri=True, timeout=1.0, check_same_thread=False)
    try:
        base.text_factory = lenient
        if sys.version_info >= (3, 11):
            base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES)
            base.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for setting in ("trusted_schema=OFF", "cell_size_check=ON", "query_only=ON"):
            base.execute(f"PRAGMA {setting}")
        _check_tables(base)
    except UNREADABLE:
        base.close()
        raise
    return base


def _check_tables(base: sqlite3.Connection) -> None:
    """Only our plain tables are read: a view, a virtual table or a computed column of a foreign
    file would be a program of its author's. Raises DatabaseError."""
    for kind, name, root in base.execute(_SCHEMA):
        if kind not in {"table", "index"} or not root:
            raise sqlite3.DatabaseError(f"it has a {kind} {name!r}")
    for table, columns in _TABLES.items():
        found = base.execute(f"PRAGMA table_xinfo({table})").fetchall()
        if any(hidden for *_, hidden in found):
            raise sqlite3.DatabaseError(f"its table {table} has computed columns")
        if not columns <= {name for _, name, *_ in found}:
            raise sqlite3.DatabaseError(f"it has no table {table} of ours")


def beside(file: Path) -> tuple[Path, Path]:
    """The log and the shared index of a SQLite file."""
    return file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")


def copied(file: Path, folder: Path) -> Path:
    """A copy of the file and its log at one moment. Raises OSError.

    The log only grows until it is folded into the file: if neither was changed in another way
    meanwhile, a prefix of the log and the file fit together. A commit that the copy's end cuts off
    does not count.
    """
    copy = folder / file.name
    log, copy_log = beside(file)[0], beside(copy)[0]
    sizes = [path.stat().st_size for path in (file, log) if path.exists()]
    if sum(sizes) > MOST_COPIED:
        raise OSError(f"it has more than {MOST_COPIED >> 30} GiB")
    for _ in range(TURNS):
        before = _mark(file), _head(log)
        shutil.copyfile(file, copy)
        if log.exists():
            shutil.copyfile(log, copy_log)
        if (_mark(file), _head(log)) == before:
            return copy
        copy_log.unlink(missing_ok=True)
    raise OSError(f"{file} changes faster than it can be copied")


def _mark(file: Path) -> tuple[int, int]:
    # Opened again, because then a network file system asks its server.
    with file.open("rb") as stream:
        found = os.fstat(stream.fileno())
        return found.st_size, found.st_mtime_ns


def _head(log: Path) -> bytes:
    """The log's header: its salts change when it begins again."""
    try:
        with log.open("rb") as stream:
            return stream.read(32)
    except FileNotFoundError:
        return b""


def newest(path: Path) -> float:
    """When a history was last written: its log is written first. 0 if it does not exist."""
    times = [0.0]
    for file in (path, beside(path)[0]):
        with contextlib.suppress(OSError):
            times.append(file.stat().st_mtime)
    return max(times)


def lenient(data: bytes) -> str:
    """The text in a file that may be damaged."""
    return data.decode("utf-8", "replace")

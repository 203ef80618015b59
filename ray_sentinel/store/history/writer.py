"""The writer of the embedded history: key series of a job in one SQLite file.

It serves jobs without a Prometheus. A row holds the values of one host at one moment: those of a
group of series (``hw_*``, ``train_*``, ...) as an array of doubles, in the order given by its
layout. The file is in WAL mode and each ``put`` is one transaction: what was put is still there
after the writer was killed. The whole job is kept in a bounded size, because older rows are packed
into ever coarser blocks; see ``aging``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import numpy as np

from ray_sentinel.errors import InputError
from ray_sentinel.store.history import aging
from ray_sentinel.store.history.keys import parse_key
from ray_sentinel.store.history.source import lenient
from ray_sentinel.store.history.table import ABSENT, BITS

VERSION = 3
"""Version of the file format."""
MAX_BYTES = 256 << 20
"""Most bytes of the file, unless the configuration says otherwise."""
FORGET_SECONDS = 1800.0
"""Seconds of silence after which a packer forgets a host."""
PRUNE_SECONDS = 60.0
"""Seconds, by the samples' time, between two searches for what is too old."""
PAGE_BYTES = 16384
"""Bytes of a page of the database: it holds a few rows, so little space is wasted."""


class Rows(msgspec.Struct, frozen=True):
    """Rows of one layout."""

    keys: tuple[str, ...]
    rows: tuple[tuple[float, str, bytes], ...]
    """The rows, each as time, host and encoded values."""


class RowPacker:
    """Makes rows from the hosts' samples, with as few layouts as possible."""

    def __init__(self) -> None:
        self.places: dict[tuple[str, str], dict[str, int]] = {}
        """(Host, group) → the places of the keys in its last row."""
        self._used: dict[tuple[str, str], float] = {}
        self._tidied = 0.0

    def pack(self, time: float, host: str, values: Mapping[str, float]) -> list[Rows]:
        """A row for each group of series. Raises ValueError for a key that is not a series."""
        groups: dict[str, dict[str, float]] = {}
        for key, value in values.items():
            groups.setdefault(key.partition("_")[0], {})[key] = value
        rows = [self._row(time, host, group, of) for group, of in groups.items()]
        if abs(time - self._tidied) >= PRUNE_SECONDS:
            self._tidied = time
            for gone in [key for key, at in self._used.items() if time - at > FORGET_SECONDS]:
                del self.places[gone], self._used[gone]
        return rows

    def _row(self, time: float, host: str, group: str, values: Mapping[str, float]) -> Rows:
        places = self.places.get((host, group), {})
        if not values.keys() <= places.keys():
            places = self.places[host, group] = _wider(places, values)
        self._used[host, group] = time
        array = np.full(len(places), ABSENT, dtype=BITS).view(np.float64)
        array[[places[key] for key in values]] = list(values.values())
        return Rows(tuple(places), ((time, host, array.tobytes()),))


def _wider(before: Mapping[str, int], values: Iterable[str]) -> dict[str, int]:
    """Places for these keys too. Keys that are gone are kept, because they may return, until they
    are the larger part."""
    new = sorted(values)
    for key in new:
        parse_key(key)
    keys = [*before, *(key for key in new if key not in before)]
    return {key: place for place, key in enumerate(new if len(keys) > 2 * len(new) else keys)}


class History:
    """Writes series. Safe to call from several threads of one process; one writer a file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = MAX_BYTES,
        alone: bool = False,
        locks: bool = True,
    ) -> None:
        """``alone``: no other process opens it and nothing is shared with one, so a network file
        system is possible; readers take a copy. ``locks`` is False for a file system that cannot
        lock files. Raises InputError if the file is not a history and cannot be made one."""
        self.path = Path(path)
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._hosts: dict[str, int] = {}
        self._layouts: dict[tuple[str, ...], int] = {}
        """The order of the values in a row, JSON in the file → its number."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        target = f"{self.path.absolute().as_uri()}{'' if locks else '?vfs=unix-none'}"
        self._base = self._open(target, alone)

    def _open(self, target: str, alone: bool) -> sqlite3.Connection:
        base = None
        try:
            base = sqlite3.connect(target, check_same_thread=False, timeout=10.0, uri=True)
            base.text_factory = lenient
            base.execute(f"PRAGMA page_size={PAGE_BYTES}")
            if alone:
                base.execute("PRAGMA locking_mode=EXCLUSIVE")
            # Pages that pruning frees go back to the file system bit by bit.
            base.execute("PRAGMA auto_vacuum=INCREMENTAL")
            base.execute("PRAGMA journal_mode=WAL")
            base.execute("PRAGMA synchronous=NORMAL")
            base.executescript(aging.SCHEMA)
            if base.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                base.execute(f"PRAGMA user_version={VERSION}")
            self._learn(base)
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            if base is not None:
                base.close()
            raise InputError(f"{self.path} cannot be used as a history: {error}") from error
        return base

    def _learn(self, base: sqlite3.Connection) -> None:
        """Read again which hosts and layouts are in the file."""
        self._hosts = dict(base.execute("SELECT name, id FROM hosts"))
        rows = base.execute("SELECT id, keys FROM layouts")
        self._layouts = {tuple(json.loads(text)): number for number, text in rows}

    def prune(self, now: float) -> None:
        """Thin what is old."""
        with self._lock:
            aging.age(self._base, now, self.max_bytes)
            if aging.drop_layouts(self._base):
                self._learn(self._base)
            self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def put(self, parts: Iterable[Rows]) -> None:
        """Write rows in one transaction. Raises sqlite3.Error."""
        insert = "INSERT OR REPLACE INTO moments VALUES (?, ?, ?, ?)"
        with self._lock:
            try:
                with self._base:
                    for part in parts:
                        number = self._layout(part.keys)
                        rows = [(number, at, self._host(name), vals)
                                for at, name, vals in part.rows]  # fmt: skip
                        self._base.executemany(insert, rows)
            except (ValueError, sqlite3.Error):
                self._learn(self._base)
                raise

    def check(self) -> None:
        """Raises InputError if the file is damaged."""
        with self._lock:
            try:
                said = self._base.execute("PRAGMA quick_check(1)").fetchone()[0]
            except sqlite3.DatabaseError as error:
                said = str(error)
        if said != "ok":
            raise InputError(f"{self.path} is damaged: {str(said).splitlines()[-1]}")

    def copy_to(self, place: Path) -> None:
        """Write a copy of its current content to a new file. Raises sqlite3.Error."""
        with self._lock, contextlib.closing(sqlite3.connect(place)) as copy:
            self._base.backup(copy)

    def shrink(self, most_bytes: int) -> None:
        """Drop the least useful samples until the file has at most ``most_bytes``. Raises
        sqlite3.Error."""
        with self._lock:
            if aging.used_bytes(self._base) > most_bytes:
                aging.thin(self._base, most_bytes)
                aging.drop_layouts(self._base)
                self._learn(self._base)
                self._base.execute("VACUUM")

    def close(self) -> None:
        """Fold the log into the file and close it."""
        with self._lock:
            self._base.close()

    def size(self) -> int:
        """Bytes that it takes on disk."""
        with self._lock:
            return aging.used_bytes(self._base)

    def _layout(self, keys: tuple[str, ...]) -> int:
        if keys not in self._layouts:
            text = json.dumps(keys)
            cursor = self._base.execute("INSERT INTO layouts (keys) VALUES (?)", (text,))
            self._layouts[keys] = int(cursor.lastrowid or 0)
        return self._layouts[keys]

    def _host(self, name: str) -> int:
        if name not in self._hosts:
            cursor = self._base.execute("INSERT INTO hosts (name) VALUES (?)", (name,))
            self._hosts[name] = int(cursor.lastrowid or 0)
        return self._hosts[name]


def history_image(
    rows: Iterable[Rows], most_bytes: int = MAX_BYTES, *, of: History | None = None
) -> bytes:
    """A history file of ``rows`` and the current content of ``of``, thinned to ``most_bytes`` if it
    is larger. Raises OSError if no local file can be created."""
    with tempfile.TemporaryDirectory(prefix="ray_sentinel-") as folder:
        place = Path(folder) / "image.db"
        try:
            if of is not None:
                of.copy_to(place)
            with contextlib.closing(History(place)) as whole:
                whole.put(rows)
                whole.shrink(most_bytes)
        except (sqlite3.Error, InputError) as error:
            raise OSError(f"the history cannot be copied to {place}: {error}") from None
        return place.read_bytes()

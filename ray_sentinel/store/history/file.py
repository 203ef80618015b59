"""The history of a whole job on disk, and what can happen to it there.

One writer for each file: a lock beside it is held as long as the writer lives. A writer continues
the file of one that died; beside one that lives it begins a file of its own. A damaged file is set
aside. A full disk, or a missing folder, is reported once, and tried again: nothing here raises or
ends anything.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ray_sentinel import regex as re
from ray_sentinel.errors import InputError
from ray_sentinel.private_files import FILE_MODE, keep_private, read_private
from ray_sentinel.store.history.source import beside, newest
from ray_sentinel.store.history.writer import MAX_BYTES, PRUNE_SECONDS, History, Rows

log = logging.getLogger(__name__)

FRESH_SECONDS = 1800.0
"""Seconds since its last write within which a file is continued, even by another deployment."""
MOST_FILES = 64
"""Most files that are examined, from the newest on."""
_AROUND = ("full", "unable to open", "disk I/O", "readonly", "locked", "locking protocol")
"""Parts of SQLite's messages about conditions that may pass."""
HISTORY_NAME = re.compile(
    r"(?P<file>series-\d{8}T\d{6}Z(?:-\d{1,6})?\.db)(?:\.damaged)?(?:-wal|-shm)?", re.ASCII
)
"""Names of a history's files; ``file`` is the name of the history."""
_HELD = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}


class HistoryFile:
    """``series-*.db`` in a folder. One thread calls ``put`` and ``close``."""

    def __init__(
        self,
        folder: Path,
        owner: str,
        max_bytes: int = MAX_BYTES,
        *,
        opened: Callable[[Path, int], History] | None = None,
    ) -> None:
        """``owner`` continues its own file however old it is. Nothing is opened before ``put``,
        which does it by ``opened`` (of a path and the most bytes); ``open_history`` unless given.
        """
        self._folder, self._owner, self._max_bytes = folder, owner, max_bytes
        self._opened = opened or open_history
        self._lock: int | None = None
        self._pruned: float | None = None
        self.history: History | None = None
        """What is open; None before the first ``put``, and while it cannot be opened."""
        self.path: Path | None = None
        self.problem = ""
        self.notes: list[str] = []
        """Notes that remain, such as a damaged file that was set aside."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files in use now, which must not be removed to make room."""
        if self.path is None:
            return ()
        return (self.path, *beside(self.path), lock_of(self.path))

    def put(self, rows: Iterable[Rows], now: float) -> bool:
        """Write rows, and thin what is old; ``now`` in Unix seconds. False: try again later."""
        if self.history is not None and self._removed():
            self._note(f"{self.path} was removed; a new one begins")
            self.close()
        if self.history is None and not self._open(now):
            return False
        assert self.history is not None
        try:
            self.history.put(rows)
            if self._pruned is None or abs(now - self._pruned) >= PRUNE_SECONDS:
                self._pruned = now
                self.history.prune(now)
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            # What a damaged file holds may be of any type.
            if not _passing(error):
                self._set_aside(self.path, str(error))
                return False
            self._fail(f"the history cannot be written to {self.path}: {error}")
            if "full" not in str(error):
                self._shut()
            return False
        self.problem = ""
        return True

    def _removed(self) -> bool:
        """Whether the file was removed; False if the file system does not answer."""
        try:
            return self.path is not None and not self.path.exists()
        except OSError:
            return False

    def _open(self, now: float) -> bool:
        try:
            keep_private(self._folder)
            if self.path is None:
                self.path = self._adopt(now) or self._begin(now)
            self.history = self._opened(self.path, self._max_bytes)
            if self._pruned is None:
                self.history.check()
        except (InputError, OSError) as error:
            cause = error.__cause__
            if isinstance(error, OSError) or _passing(cause):
                self._shut()
                self._fail(f"the history in {self._folder} cannot be opened: {error}")
            else:
                self._set_aside(self.path, str(error))
            return False
        return True

    def _adopt(self, now: float) -> Path | None:
        """The locked file of a writer that died; None if there is none to continue."""
        files = sorted(self._folder.glob("series-*.db"), key=newest, reverse=True)
        for file in files[:MOST_FILES]:
            own = bool(self._owner) and owner_of(file) == self._owner
            if not own and now - newest(file) >= FRESH_SECONDS:
                continue
            lock, sure = _locked(file)
            if lock is None:
                continue
            if (own or sure) and file.exists():
                self._hold(lock)
                return file
            os.close(lock)
        return None

    def _begin(self, now: float) -> Path:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        number = 1
        while True:
            more = f"-{number}" if number > 1 else ""
            file = self._folder / f"series-{stamp}{more}.db"
            number += 1
            if file.exists():
                continue
            lock, _ = _locked(file)
            if lock is not None:
                self._hold(lock)
                return file

    def _hold(self, lock: int) -> None:
        os.ftruncate(lock, 0)
        os.pwrite(lock, self._owner.encode(), 0)
        self._lock = lock

    def _set_aside(self, path: Path | None, why: str) -> None:
        self._shut()
        self.close()
        if path is None:
            return
        aside = path.with_name(f"{path.name}.damaged")
        try:
            for file in beside(path):
                if file.exists():
                    os.replace(file, aside.with_name(file.name.replace(path.name, aside.name)))
            os.replace(path, aside)
        except OSError as error:
            self._fail(f"the history {path} is damaged and cannot be set aside: {error}")
            return
        self._note(f"the history {path} was damaged ({why}): it is {aside.name} now")

    def _fail(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("%s; it is tried again, the watch goes on", problem)
        self.problem = problem

    def _note(self, note: str) -> None:
        log.warning("%s", note)
        self.notes = [*self.notes, note][-5:]

    def _shut(self) -> None:
        if self.history is not None:
            try:
                self.history.close()
            except sqlite3.Error as error:
                log.warning("%s cannot be closed: %s", self.path, error)
        self.history = None

    def close(self) -> None:
        """Fold the log into the file and close it."""
        self._shut()
        if self._lock is not None:
            os.close(self._lock)
        self._lock = self.path = self._pruned = None


def open_history(path: Path, max_bytes: int) -> History:
    """The history at ``path``, created if there is none. Raises InputError, OSError."""
    # SQLite would leave it to the umask who may read it; its log gets the same mode.
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE))
    try:
        return History(path, max_bytes=max_bytes, alone=True)
    except InputError as error:
        said = str(error.__cause__)
        if "locking protocol" not in said and "disk I/O" not in said:
            raise
    # A network file system without locks. The lock beside it, or its own name, keeps others out.
    return History(path, max_bytes=max_bytes, alone=True, locks=False)


def _passing(error: BaseException | None) -> bool:
    """Whether the cause is outside the file, not damage in it."""
    return isinstance(error, sqlite3.OperationalError) and any(
        word in str(error) for word in _AROUND
    )


def lock_of(file: Path) -> Path:
    """The lock file of a history, which contains the writer's name."""
    return file.with_name(f".{file.name}.lock")


def owner_of(file: Path) -> str:
    """The last writer of a history; empty if unknown."""
    return read_private(lock_of(file), 100).decode("utf-8", "replace")


def remove_history(file: Path) -> bool:
    """Remove a history that has no writer, with its companion files. Returns whether it is gone."""
    try:
        lock, _ = _locked(file)
    except OSError:
        return False
    if lock is None:
        return False
    damaged = file.with_name(f"{file.name}.damaged")
    try:
        for one in (file, *beside(file), damaged, *beside(damaged), lock_of(file)):
            one.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _locked(file: Path) -> tuple[int | None, bool]:
    """The lock's descriptor, None where another holds it; and whether locks work here at all."""
    path = lock_of(file)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _HELD:
            os.close(lock)
            return None, True
        return lock, False
    try:
        same = os.path.samestat(os.fstat(lock), os.lstat(path))
    except OSError:
        same = False
    if not same:
        # The history was removed while we waited for it.
        os.close(lock)
        return None, True
    return lock, True

"""Opening a history file for reading, without leaving a trace beside it or disturbing its writer.

Where somebody writes it (there is a log, ``-wal``, and no shared index, ``-shm``, for the writer
keeps that to itself), was killed while writing, or it lies where nothing can be locked, a copy of
file and log is read: SQLite's recovery then writes into the copy.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

from ray_sentinel.errors import InputError

TURNS = 8
"""Of copying a file that changes meanwhile."""
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file raises: SQLite quotes it in its messages, whatever the bytes are."""
_MAGIC = b"SQLite format 3\0"
REMEDY = (
    "another file of the folder history/, or `ray-sentinel triage` on the job's logs, may serve"
)


class OpenFile:
    """A connection to a history file, or to a copy of it; ``close`` removes the copy."""

    def __init__(self, file: Path) -> None:
        """Raises InputError where there is no such file or it is no history."""
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        _look(file)
        try:
            self.base = self._connect(file)
        except UNREADABLE as error:
            self._drop_copy()
            raise InputError(f"{file} is not a history of ours: {error}; {REMEDY}") from None
        except OSError as error:
            self._drop_copy()
            raise InputError(
                f"{file} cannot be copied to {tempfile.gettempdir()} to be read: {error}; "
                "TMPDIR may name a folder that has room"
            ) from None

    def close(self) -> None:
        """Let go of it."""
        self.base.close()
        self._drop_copy()

    def _drop_copy(self) -> None:
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    def _connect(self, file: Path) -> sqlite3.Connection:
        log, shared = beside(file)
        if not log.exists():
            # Nobody writes: no lock is needed, and no log is made in a folder that is not ours.
            return _checked(file, "?mode=ro&immutable=1")
        if shared.exists():
            try:
                return _checked(file, "?mode=ro")
            except sqlite3.OperationalError:
                pass  # locked, or in a folder that cannot be written: the copy below serves
        self._copy = tempfile.TemporaryDirectory(prefix="ray_sentinel-")
        return _checked(copied(file, Path(self._copy.name)), "")


def beside(file: Path) -> tuple[Path, Path]:
    """The log and the shared index of a SQLite file."""
    return file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")


def copied(file: Path, folder: Path) -> Path:
    """A copy of the file and its log, of one moment. Raises OSError.

    The log only grows until it is folded into the file: if neither was changed in another way
    meanwhile, a beginning of the log and the file fit together. A commit that is cut off by the
    copy's end does not count.
    """
    copy = folder / file.name
    log, copy_log = beside(file)[0], beside(copy)[0]
    for _ in range(TURNS):
        before = _mark(file), _head(log)
        shutil.copyfile(file, copy)
        if log.exists():
            shutil.copyfile(log, copy_log)
        if (_mark(file), _head(log)) == before:
            return copy
        copy_log.unlink(missing_ok=True)
    raise OSError(f"{file} changes faster than it can be copied")


def newest(path: Path) -> float:
    """When a history was last written: its log is written first. 0 where it is gone."""
    times = [0.0]
    for file in (path, beside(path)[0]):
        try:
            times.append(file.stat().st_mtime)
        except OSError:
            continue
    return max(times)


def _mark(file: Path) -> tuple[int, int]:
    # Opened anew: a network file system asks its server then.
    with file.open("rb") as stream:
        found = os.fstat(stream.fileno())
        return found.st_size, found.st_mtime_ns


def _head(log: Path) -> bytes:
    """The log's header: its salts change when it begins anew."""
    try:
        with log.open("rb") as stream:
            return stream.read(32)
    except FileNotFoundError:
        return b""


def lenient(data: bytes) -> str:
    """Text of a file that may be damaged."""
    return data.decode("utf-8", "replace")


def _look(file: Path) -> None:
    try:
        with file.open("rb") as stream:
            begins = stream.read(len(_MAGIC))
    except FileNotFoundError:
        raise InputError(f"{file}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None
    log = beside(file)[0]
    if begins != _MAGIC and not (not begins and log.exists()):
        raise InputError(f"{file} is not a history of ours: it is no SQLite file; {REMEDY}")


def _checked(file: Path, how: str) -> sqlite3.Connection:
    uri = f"{file.absolute().as_uri()}{how}"
    base = sqlite3.connect(uri, uri=True, timeout=1.0, check_same_thread=False)
    base.text_factory = lenient
    try:
        base.execute("SELECT id, keys FROM layouts LIMIT 1").fetchall()
        base.execute("SELECT layout, time, host, vals FROM moments LIMIT 1").fetchall()
    except UNREADABLE:
        base.close()
        raise
    return base

"""A supervisor's files on disk: the run's state, each attempt's state, and the owning process.

<log_dir>/run/<job>/
    lock            held (flock) by the supervisor that lives
    ledger.json     what must survive it
    attempt-0003/
        state.json  the keeper's: pids, start, and the end once there is one
        output.log  standard output and error of the command; output.1.log is older
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from ray_sentinel.errors import SentinelError, UsageError
from ray_sentinel.private_files import keep_private
from ray_sentinel.progress.proc import pidfd
from ray_sentinel.supervise.actions import RunResult
from ray_sentinel.supervise.json_records import decode, encode
from ray_sentinel.supervise.restart_state_machine import SupervisionState
from ray_sentinel.whole_file import write_whole

T = TypeVar("T")

STATE = "state.json"
OUTPUT = "output.log"
OLDER = "output.1.log"
SETTLED_SECONDS = 5.0
"""Seconds after the last write from which on another write is sure to change the time of the
file."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the next supervisor must know."""

    argv: tuple[str, ...]
    ledger: SupervisionState
    result: RunResult | None = None
    supervisor: int = 0
    """The pid of the supervisor."""
    version: int = 1


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the keeper writes about one attempt. ``start`` is as in ``/proc/<pid>/stat``."""

    keeper: int
    keeper_start: int
    child: int = 0
    child_start: int = 0
    started_at: float = 0.0
    ended_at: float | None = None
    code: int | None = None
    signal: int | None = None
    left: tuple[str, ...] = ()
    """Processes that the command left behind, and that were then ended."""
    stuck: tuple[int, ...] = ()
    """Pids that did not end even by SIGKILL."""
    lost_bytes: int = 0
    """Bytes of output that could not be written."""
    problem: str = ""
    """Why the command could not be started; empty if it could."""


class RunFolder:
    """The folder of one job, created by the constructor. Raises SentinelError if that is not
    possible."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1
        self._state: State | None = None
        self._state_key: tuple[int, ...] = ()
        with _writable(path):
            keep_private(path)

    def lock(self) -> None:
        """Become the only supervisor of this job. Raises UsageError if there is another one."""
        lock = self.path / "lock"
        with _writable(lock):
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            told = self.recorded()
            who = f"pid {told.supervisor}" if told else "another process"
            raise UsageError(
                f"{who} supervises this job already: end it, or give --job another name"
            ) from None
        except OSError as error:
            os.close(handle)
            raise SentinelError(
                f"{lock}: cannot be locked: {error.strerror}; set log_dir (RAY_SENTINEL_LOG_DIR) "
                "to a file system with locks (Lustre: mount it with -o flock)"
            ) from None
        self._lock = handle

    def unlock(self) -> None:
        """Allow others to supervise."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def recorded(self) -> Told | None:
        """What the last supervisor wrote; None if there is nothing, or it cannot be read."""
        return _read(self.path / "ledger.json", Told)

    def record(self, told: Told) -> str:
        """Store it. Returns the problem if it cannot be written."""
        try:
            write_whole(self.path / "ledger.json", encode(told), durable=True)
        except OSError as error:
            return f"{self.path}: {error.strerror}: a restarted supervisor will not know of this"
        return ""

    def attempt(self, number: int) -> Path:
        """The folder of one attempt."""
        return self.path / f"attempt-{number:04d}"

    def new_attempt(self, number: int) -> Path:
        """The folder of an attempt that is about to start: it exists, and contains no earlier end.

        Raises SentinelError.
        """
        folder = self.attempt(number)
        with _writable(folder):
            keep_private(folder)
            (folder / STATE).unlink(missing_ok=True)
        return folder

    def next_attempt(self) -> int:
        """One more than the highest number that has a folder."""
        return max(self._attempts(), default=-1) + 1

    def _attempts(self) -> Iterator[int]:
        for path in self.path.glob("attempt-*"):
            number = path.name.removeprefix("attempt-")
            if number.isascii() and number.isdigit():
                yield int(number)

    def state(self, number: int) -> State | None:
        """What the attempt's keeper wrote; it is read again only if the file has changed."""
        path = self.attempt(number) / STATE
        try:
            found = os.stat(path)
        except OSError:
            return None
        key = (number, found.st_ino, found.st_mtime_ns, found.st_size)
        # Two writes in one tick of the file system's clock look alike.
        settled = time.time_ns() - found.st_mtime_ns > SETTLED_SECONDS * 1e9
        if not settled or self._state_key != key or self._state is None:
            self._state_key, self._state = key, _read(path, State)
        return self._state

    def running(self) -> int | None:
        """The latest attempt whose keeper lives, whatever the ledger says."""
        for number in sorted(self._attempts(), reverse=True):
            state = self.state(number)
            if state is None or state.ended_at is not None:
                continue
            if not pidfd.has_ended(state.keeper, state.keeper_start):
                return number
        return None


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return decode(path.read_bytes(), kind)
    except OSError:
        return None


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SentinelError(
            f"{error.filename or path}: {error.strerror}; mend it, or set log_dir "
            "(RAY_SENTINEL_LOG_DIR) to a folder that can be written"
        ) from None

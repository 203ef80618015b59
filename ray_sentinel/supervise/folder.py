"""What a supervisor keeps on disk: its ledger, each attempt's state, and who supervises.

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
from pathlib import Path
from typing import TypeVar

import msgspec

from ray_sentinel.errors import SentinelError, UsageError
from ray_sentinel.supervise.actions import Result
from ray_sentinel.supervise.course import Ledger
from ray_sentinel.whole_file import write_whole

T = TypeVar("T")

STATE = "state.json"
OUTPUT = "output.log"
OLDER = "output.1.log"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the next life of the supervisor must know."""

    argv: tuple[str, ...]
    ledger: Ledger
    result: Result | None = None
    supervisor: int = 0
    """Its pid."""
    version: int = 1


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the keeper writes of one attempt. ``start`` as in ``/proc/<pid>/stat``."""

    keeper: int
    keeper_start: int
    child: int = 0
    child_start: int = 0
    started_at: float = 0.0
    ended_at: float | None = None
    code: int | None = None
    signal: int | None = None
    left: tuple[str, ...] = ()
    """Processes that the command left behind, and that were ended."""
    stuck: tuple[int, ...] = ()
    """Pids that did not go even by SIGKILL."""
    lost_bytes: int = 0
    """Output that could not be written."""
    problem: str = ""
    """Why the command could not be started."""


class Folder:
    """The folder of one job. Made by the constructor; raises SentinelError where it cannot be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise SentinelError(
                f"{path}: cannot be made: {error.strerror}; set log_dir or RAY_SENTINEL_LOG_DIR"
            ) from None

    def lock(self) -> None:
        """Be the only supervisor of this job. Raises UsageError where there is another."""
        handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            told = self.told()
            who = f"pid {told.supervisor}" if told else "another process"
            raise UsageError(
                f"{who} supervises this job already: end it, or give --job another name"
            ) from None
        self._lock = handle

    def unlock(self) -> None:
        """Let others supervise."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def told(self) -> Told | None:
        """What the last supervisor wrote; None where nothing is, or where it cannot be read."""
        return _read(self.path / "ledger.json", Told)

    def tell(self, told: Told) -> str:
        """Keep it; returns the problem where it cannot be written."""
        try:
            write_whole(self.path / "ledger.json", msgspec.json.encode(told))
        except OSError as error:
            return f"{self.path}: {error.strerror}: a restarted supervisor will not know of this"
        return ""

    def attempt(self, number: int) -> Path:
        """The folder of one attempt."""
        return self.path / f"attempt-{number:04d}"

    def state(self, number: int) -> State | None:
        """What the attempt's keeper wrote."""
        return _read(self.attempt(number) / STATE, State)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None

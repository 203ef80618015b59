"""Reads the files of ``/proc`` that the kernel takes from a process's memory, and whose it is.

The command line, the environment and the memory map are behind a lock on the process's memory. A
process that hangs in a driver may hold that lock for ever, and every reader waits with it (which is
why ``ps`` hangs on such machines). So they are read in other threads, and the caller goes on
without them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ray_sentinel.bounded import Bounded
from ray_sentinel.evidence_file import users_of
from ray_sentinel.progress.proc.proc_stat import Key
from ray_sentinel.trusted_path import are_trusted

Of = TypeVar("Of", bound=Hashable)
Read = TypeVar("Read")

PATIENCE = 1.0
"""Seconds that all processes of one poll may take together, 64 at a time: those of users whom we
trust, and after them those of others."""
SAID_AFTER = 5.0
"""Seconds after which a reader that has not returned means that the process hangs, not that the
machine is busy."""
MOST_HANGING = 64
"""Most readers that may hang at one time; beyond that no other process is read. Of processes of
other users as many again: anybody can start some that hang."""
MAX_FILE = 1 << 20
"""Most bytes read of a file."""


class Own(msgspec.Struct, frozen=True):
    """The command line and environment of a process; None if they may not be read or the process
    has ended."""

    line: bytes | None
    """Its arguments, each ended by a zero byte; empty for threads of the kernel and zombies."""
    environ: bytes | None
    """The variables that it started with, each ended by a zero byte."""
    program: str
    """The base name of its executable; empty where we may not look."""
    users: frozenset[int] = frozenset()
    """The numbers of its real, effective and saved users; empty if the process has ended."""


class _Readers(Generic[Of, Read]):
    """Reads side by side, and processes of other users apart: what hangs of theirs takes no place
    of ours."""

    def __init__(self, patience: float, process: Callable[[Of], int]) -> None:
        """``process`` is the pid that a key is about."""
        self._process = process
        self._ours: Bounded[Of, Read] = Bounded(patience, MOST_HANGING)
        self._others: Bounded[Of, Read] = Bounded(patience, MOST_HANGING)

    @property
    def stuck(self) -> set[Of]:
        """Whose readers have not returned."""
        return self._ours.stuck.keys() | self._others.stuck.keys()

    def run(self, work: Mapping[Of, Callable[[], Read]], proc: str) -> dict[Of, Read]:
        """What could be read in time."""
        trusted = {key for key in work if are_trusted(_users(self._process(key), proc))}
        ours, _ = self._ours.run({key: read for key, read in work.items() if key in trusted})
        theirs, _ = self._others.run(
            {key: read for key, read in work.items() if key not in trusted}
        )
        return ours | theirs


def _users(pid: int, proc: str) -> frozenset[int]:
    try:
        return users_of(pid, proc)
    except (OSError, ValueError):
        return frozenset()


class ProcessMemory:
    """Reads processes; one that hangs is skipped until its reader has returned."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        *,
        patience: float = PATIENCE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proc = str(proc)
        self._monotonic = monotonic
        self._own: _Readers[Key, Own] = _Readers(patience, _pid_of)
        self._maps: _Readers[Key, bytes] = _Readers(patience, _pid_of)
        self._hanging_since: dict[Key, float] = {}
        self._said: set[Key] = set()
        self.problems: list[str] = []
        """Which processes cannot be read; the caller reads and clears this."""

    def own(self, keys: Iterable[Key]) -> dict[Key, Own]:
        """The command line and environment of each process; those that hang are missing."""
        return self._run(self._own, keys, self._read_own)

    def maps(self, keys: Iterable[Key]) -> dict[Key, bytes]:
        """The memory map of each process, empty if we may not read it; those that hang are
        missing."""
        return self._run(self._maps, keys, self._read_maps)

    def _run(
        self, readers: _Readers[Key, Read], keys: Iterable[Key], read: Callable[[int], Read]
    ) -> dict[Key, Read]:
        found = readers.run({key: partial(read, key[0]) for key in keys}, self._proc)
        self._complain()
        return found

    def _complain(self) -> None:
        now, before = self._monotonic(), self._hanging_since
        hanging = self._own.stuck | self._maps.stuck
        self._hanging_since = {key: before.get(key, now) for key in hanging}
        late = {key for key, since in self._hanging_since.items() if now - since >= SAID_AFTER}
        self.problems += [
            f"pid {pid} hangs in the kernel with its memory locked: who it is cannot be read"
            for pid, _ in sorted(late - self._said)
        ]
        self._said = late

    def _read_own(self, pid: int) -> Own:
        line = read_file(self._proc, pid, "cmdline")
        environ = read_file(self._proc, pid, "environ") if line else b""
        return Own(line, environ, self._program(pid), _users(pid, self._proc))

    def _read_maps(self, pid: int) -> bytes:
        return read_file(self._proc, pid, "maps") or b""

    def _program(self, pid: int) -> str:
        try:
            return os.path.basename(os.readlink(f"{self._proc}/{pid}/exe"))
        except OSError:
            return ""


def _pid_of(key: Key) -> int:
    return key[0]


_aside: _Readers[tuple[str, int, str], bytes] = _Readers(PATIENCE, lambda key: key[1])
_asking = threading.Lock()


def memory_files(
    pids: Iterable[int], name: str, proc: str | os.PathLike[str] = "/proc"
) -> dict[int, bytes]:
    """``cmdline``, ``environ`` or ``maps`` of some processes, for code that must not wait for them.

    Processes that have ended or may not be read are missing, and so are those that hang: these cost
    ``PATIENCE`` once, and are not read again before their reader has returned. Any thread may call.
    """
    root = os.fspath(proc)

    def read(pid: int) -> bytes:
        data = read_file(root, pid, name)
        if data is None:
            raise OSError("it is gone, or not for us")
        return data

    with _asking:
        found = _aside.run({(root, pid, name): partial(read, pid) for pid in pids}, root)
    return {pid: data for (_, pid, _), data in found.items()}


def memory_at(pid: int, address: int, size: int) -> bytes | None:
    """What a process has in its memory at an address, for code that must not wait for it; None if
    it has ended, hangs, has nothing there, or may not be read."""

    def read() -> bytes:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            try:
                return os.pread(memory.fileno(), size, address)
            except OverflowError as error:
                raise OSError("no process has anything there") from error

    key = ("/proc", pid, "mem")
    with _asking:
        found = _aside.run({key: read}, "/proc")
    return found.get(key)


def memory_file(pid: int, name: str, proc: str | os.PathLike[str] = "/proc") -> bytes | None:
    """``memory_files`` for one process; None if it is missing."""
    return memory_files([pid], name, proc).get(pid)


def read_file(proc: str, pid: int, name: str) -> bytes | None:
    """A file of a process, ``MAX_FILE`` bytes at most; None if it has ended or may not be read."""
    try:
        handle = os.open(f"{proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        size = 0
        while size < MAX_FILE and (part := os.read(handle, 1 << 16)):
            parts.append(part)
            size += len(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(handle)

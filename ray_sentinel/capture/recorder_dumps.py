"""Flight recorders of ranks that did not attach: by PyTorch's own pipe, and from disk.

PyTorch's watchdog writes ``<prefix><rank>`` when it gives up, or when somebody writes into
``<pipe><rank>.pipe`` (``c10d::DumpPipe``, ``c10d::DebugInfoWriter``). Both names come from the
rank's environment, which is read while the rank lives, so that what it left can be found later.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import msgspec

from ray_sentinel.bounded import Bounded
from ray_sentinel.clock import WallHistory
from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence_file import ForeignFileError, open_evidence, open_fifo_of, uid_of
from ray_sentinel.kernel_files import parse_environ
from ray_sentinel.model.identity import Rank
from ray_sentinel.progress.ask import MAX_ANSWER
from ray_sentinel.progress.proc.proc_stat import TICK, Key, parse_stat

_POLL = 0.1
"""Seconds between two checks for what the watchdog has written."""
FRESH = 30.0
"""Seconds for which a dump counts as fresh and no new one is asked for: an older file may be about
an earlier problem that the job recovered from."""
_AHEAD = 30.0
"""Seconds by which a shared file system's clock may be ahead. A file with a later time cannot be
attributed, because the clock has been set back since."""
_MOST_KNOWN = 4096
"""Most ranks whose locations are remembered; the oldest are dropped first."""
LOOK_SECONDS = 1.0
"""Seconds for each batch of 16 ranks, whose environments are read in parallel."""
_BEHIND = 2.0
"""Seconds by which a shared file system's clock may be behind."""
_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"


Stamp = tuple[int, int, int] | None
"""Inode, time and size of a file; None where there is no file."""


class NoDumpError(SentinelError):
    """A rank's flight recorder is not available; the message says why."""


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where one rank's PyTorch writes its flight recorder."""

    files: tuple[Path, ...]
    """Where the dump may lie: the place in the variable, or without it the defaults of PyTorch's
    versions."""
    pipe: Path | None = None
    """The pipe that asks for a dump, where the job has set one up."""
    owner: int = msgspec.field(default_factory=os.geteuid)
    """The user whose files these are, which is the rank's user; those of others are not read."""
    process: Key | None = None
    """The rank, at whose root its paths begin; once it has ended, they begin at ours."""
    proc: str = "/proc"


class FoundDump(msgspec.Struct, frozen=True):
    """The path of a dump, and who must own it when it is read."""

    path: Path
    where: Places


def places(rank: int, environ: Mapping[str, str]) -> Places:
    """The places, from the environment that the rank's process was started with, for files of our
    own."""
    prefixes = [environ[name] for name in _PREFIXES if environ.get(name)][:1]
    if not prefixes:
        cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '/root')}/.cache"
        prefixes = [
            f"{cache}/torch/comm_lib_trace_rank_",
            f"{cache}/torch/nccl_trace_rank_",
            "/tmp/nccl_trace_rank_",
        ]
    pipe = environ.get(_PIPE)
    return Places(
        files=tuple(Path(f"{prefix}{rank}") for prefix in prefixes),
        pipe=Path(f"{pipe}{rank}.pipe") if pipe else None,
    )


def read_environ(pid: int, proc: str = "/proc") -> dict[str, str]:
    """The environment that a process was started with. Raises OSError if it may not be read."""
    data = Path(f"{proc}/{pid}/environ").read_bytes()
    if not data:
        raise OSError("it is not there (yet): the process starts or ends")
    return parse_environ(data)


def on_disk(
    where: Places, is_wanted: Callable[[Path, os.stat_result], bool] = lambda path, info: True
) -> FoundDump | None:
    """The dump's place, if it is wanted and not empty.

    Raises NoDumpError if there is none but another user's.
    """
    refused: list[str] = []
    for path in where.files:
        found = _stat_dump(path, where, refused)
        if found is not None and is_wanted(path, found):
            return FoundDump(path, where) if found.st_size else None
    if refused:
        raise NoDumpError("; ".join(refused))
    return None


def by_pipe(
    where: Places,
    timeout: float,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> FoundDump:
    """Request a dump from the rank's watchdog and wait for it. Returns its place. Raises
    NoDumpError.

    The watchdog checks the pipe about once a second, and writes its file in one go.
    """
    if where.pipe is None:
        raise NoDumpError(f"{_PIPE} is not set: its watchdog cannot be asked for a dump")
    before = {path: found.st_mtime_ns for path in where.files if (found := _stat_dump(path, where))}
    _poke(where.pipe, where)
    end = now() + timeout
    size: dict[Path, int] = {}
    while now() < end:
        sleep(_POLL)
        for path in where.files:
            found = _stat_dump(path, where)
            if found is None or found.st_mtime_ns == before.get(path):
                continue
            if found.st_size and size.get(path) == found.st_size:
                return FoundDump(path, where)
            size[path] = found.st_size
    raise NoDumpError(f"its watchdog, asked through {where.pipe}, wrote nothing in {timeout:g} s")


def _poke(pipe: Path, where: Places) -> None:
    try:
        with _root(where) as root:
            handle = open_fifo_of(pipe, where.owner, root=root)
    except ForeignFileError as error:
        raise NoDumpError(str(error)) from error
    except OSError as error:
        raise NoDumpError(f"{pipe} cannot be opened: {error.strerror}") from error
    try:
        os.write(handle, b"1\n")
    except OSError as error:
        raise NoDumpError(f"{pipe} cannot be written: {error.strerror}") from error
    finally:
        os.close(handle)


def _stat_dump(
    path: Path, where: Places, refused: list[str] | None = None
) -> os.stat_result | None:
    """What the file is; None if there is none, or one that is not the rank's (``refused``)."""
    try:
        with _root(where) as root:
            handle = open_evidence(path, where.owner, root=root)
    except ForeignFileError as error:
        if refused is not None:
            refused.append(str(error))
        return None
    except OSError:
        return None
    try:
        return os.fstat(handle)
    finally:
        os.close(handle)


def read_dump(found: FoundDump) -> bytes:
    """A dump's bytes. Raises NoDumpError."""
    path, where = found.path, found.where
    try:
        with (
            _root(where) as root,
            open(open_evidence(path, where.owner, root=root), "rb") as file,
        ):
            return file.read(MAX_ANSWER + 1)
    except ForeignFileError as error:
        raise NoDumpError(str(error)) from error
    except OSError as error:
        raise NoDumpError(f"{path} cannot be read: {error.strerror}") from error


@contextlib.contextmanager
def _root(where: Places) -> Iterator[str]:
    """The rank's root while it can be entered; what a dead rank left is looked for below ours.

    It is held open: its number, and with it ``/proc/<pid>/root``, may become another process's.
    """
    handle = -1
    try:
        if where.process is not None:
            pid, start = where.process
            handle = os.open(f"{where.proc}/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            if parse_stat(Path(f"{where.proc}/{pid}/stat").read_bytes()).start != start:
                raise ProcessLookupError
        root = f"/proc/self/fd/{handle}" if where.process is not None else "/"
    except (OSError, ValueError):
        root = "/"
    try:
        yield root
    finally:
        if handle >= 0:
            os.close(handle)


class Recorders:
    """Remembers where ranks write their recorders, so that they are found when a rank is gone.

    Any thread may call.
    """

    def __init__(
        self,
        sleep: Callable[[float], None] = time.sleep,
        *,
        proc: str = "/proc",
        wall: WallHistory | None = None,
    ) -> None:
        """``wall`` tells when files were written, even if the wall clock has been set since."""
        self._sleep = sleep
        self._proc = proc
        self.wall = wall or WallHistory()
        self._known: dict[Key, tuple[Places, float]] = {}
        """Where each writes, and when it was started (seconds since boot)."""
        self._first: dict[Key, dict[Path, Stamp]] = {}
        """What was there at the first search: anything else is surely newer."""
        # An environment lies behind the process's memory lock, which a thread of it that hangs in
        # the kernel may hold: a read of it may never return.
        self._looks: Bounded[Key, tuple[Places, float]] = Bounded(LOOK_SECONDS, most=16)
        self._lock = threading.Lock()

    def note(self, ranks: Iterable[Rank]) -> dict[Key, str]:
        """Read each living rank once. Returns why nothing is known about the others."""
        with self._lock:
            unknown = {
                key: partial(_places_of, rank, self._proc)
                for rank in ranks
                if (key := _key(rank)) not in self._known
            }
            found, failures = self._looks.run(unknown)
            self._known |= found
            while len(self._known) > _MOST_KNOWN:
                self._first.pop(oldest := next(iter(self._known)), None)
                del self._known[oldest]
        return failures

    def find(self, rank: Rank, timeout: float) -> FoundDump:
        """Where the rank's watchdog left a dump, or writes one on request, for ``read_dump``.

        Raises NoDumpError.
        """
        failures = self.note([rank])
        known = self._known.get(_key(rank))
        if known is None:
            why = failures.get(_key(rank), "too many other ranks were looked at meanwhile")
            raise NoDumpError(f"it is not attached, and its environment cannot be read: {why}")
        where, begun = known
        looked_for = self._first.get(_key(rank))
        if looked_for is None:
            there = {path: _stat_dump(path, where) for path in where.files}
            self._first[_key(rank)] = {path: _stamp(found) for path, found in there.items()}

        def is_own(path: Path, found: os.stat_result) -> bool:
            changed = looked_for is not None and looked_for[path] != _stamp(found)
            return changed or self._is_since(begun - _BEHIND, found)

        def is_fresh(path: Path, found: os.stat_result) -> bool:
            return is_own(path, found) and self._is_since(self.wall.now() - FRESH, found)

        with contextlib.suppress(NoDumpError):  # reported below if there is nothing else
            if fresh := on_disk(where, is_fresh):
                return fresh
        try:
            return by_pipe(where, timeout, sleep=self._sleep)
        except NoDumpError:
            # It has ended, or its watchdog is busy: only what it has already left can be read.
            if left := on_disk(where, is_own):
                return left
            raise

    def _is_since(self, since: float, found: os.stat_result) -> bool:
        """Whether a file is surely not older than ``since`` (seconds since boot), even if its time
        is one that the clock has shown twice."""
        at = self.wall.earliest(found.st_mtime, _AHEAD)
        return at is not None and at >= since


def _stamp(found: os.stat_result | None) -> Stamp:
    return (found.st_ino, found.st_mtime_ns, found.st_size) if found is not None else None


def _key(rank: Rank) -> Key:
    return rank.process.pid, rank.process.start


def _places_of(rank: Rank, proc: str) -> tuple[Places, float]:
    """The places, and when the process was started, in seconds since boot, which setting a clock
    does not change: an older file belongs to another run. Raises OSError."""
    environ = read_environ(rank.process.pid, proc)
    pid = rank.process.pid
    try:
        started = parse_stat(Path(f"{proc}/{pid}/stat").read_bytes()).start * TICK
    except ValueError as error:
        raise OSError(f"when it was started cannot be read: {error}") from error
    where = msgspec.structs.replace(
        places(rank.id.rank, environ), owner=uid_of(pid, proc), process=_key(rank), proc=proc
    )
    return where, started

"""What a Prometheus data folder contains, found out without opening the database.

A block is a folder named by a ULID with ``meta.json``, ``index`` and ``chunks/``; what is not yet
in a block is in ``wal/`` and ``chunks_head/`` (``tsdb/docs/format/README.md`` of Prometheus). A
running Prometheus holds an flock on ``lock``; ``/proc/locks`` shows that without touching it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.clock import LATEST
from ray_sentinel.errors import InputError
from ray_sentinel.progress.proc.process_memory import memory_file
from ray_sentinel.regular_file import open_regular, read_regular

ULID = re.compile(r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$")
MOST_META_BYTES = 16 << 20
"""Most bytes of a block's ``meta.json``, which names the blocks that it was made of."""
FRESH_SECONDS = 120.0
"""Seconds since its last write within which a WAL belongs to a running Prometheus, here or on
another machine."""


class TsdbBlock(msgspec.Struct, frozen=True):
    """One finished block; times in Unix seconds."""

    path: str
    start: float
    end: float
    series: int = 0
    samples: int = 0


class Database(msgspec.Struct, frozen=True, kw_only=True):
    """A data folder as it lies on disk."""

    path: str
    blocks: tuple[TsdbBlock, ...] = ()
    broken: tuple[str, ...] = ()
    """Blocks that cannot be used, each with the reason."""
    wal: bool = False
    holder: int = 0
    """Pid of the process on this machine that holds the lock; 0 if there is none."""
    live: bool = False

    @property
    def span(self) -> tuple[float, float] | None:
        """The range of the finished blocks."""
        if not self.blocks:
            return None
        return min(b.start for b in self.blocks), max(b.end for b in self.blocks)


def find_database(folder: Path) -> Path:
    """The data folder meant by ``folder``: itself, its ``prometheus/``, or ``prometheus/data``.

    Raises InputError, saying what the folder is, if it is none of these.
    """
    if not folder.exists():
        raise InputError(f"{folder}: there is no such folder")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file; a job's folder or a Prometheus data folder is meant")
    candidates = [folder, folder / "prometheus", folder / "prometheus" / "data", folder / "data"]
    for candidate in candidates:
        if is_database(candidate):
            return candidate
    for candidate in candidates[1:3]:
        if candidate.is_dir():
            raise InputError(
                f"{candidate} holds no blocks and no WAL: Prometheus never started there or never "
                f"scraped. {candidate / 'prometheus.log'} or the job's log may say why; "
                "`ray-sentinel triage` works from the logs alone"
            )
    raise InputError(
        f"{folder} is not a Prometheus data folder and has no prometheus/ in it; "
        "`ray-sentinel triage` works from the logs alone"
    )


def is_database(folder: Path) -> bool:
    """Whether a folder contains blocks or a non-empty WAL."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return any(ULID.match(name) for name in names) or _has_wal(folder)


def inspect(folder: Path) -> Database:
    """Examine a data folder; an incomplete block is named, never an error.

    Raises InputError if the folder cannot be read.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}") from None
    blocks, broken = [], []
    for name in names:
        if not ULID.match(name):
            continue
        try:
            blocks.append(_block(folder / name))
        except InputError as error:
            broken.append(f"{name}: {error}")
    holder = lock_holder(folder / "lock")
    return Database(
        path=str(folder),
        blocks=tuple(blocks),
        broken=tuple(broken),
        wal=_has_wal(folder),
        holder=holder,
        live=holder != 0 or _freshly_written(folder / "wal"),
    )


class _Stats(msgspec.Struct, frozen=True):
    numSeries: int = 0
    numSamples: int = 0


_LATEST = int(LATEST) * 1000
_Milliseconds = Annotated[int, msgspec.Meta(ge=-_LATEST, le=_LATEST)]


class _Meta(msgspec.Struct, frozen=True):
    """``meta.json`` of a block; times in milliseconds since 1970."""

    minTime: _Milliseconds
    maxTime: _Milliseconds
    stats: _Stats | None = None


def _block(folder: Path) -> TsdbBlock:
    try:
        meta = msgspec.json.decode(read_regular(folder / "meta.json", MOST_META_BYTES), type=_Meta)
    except OSError as error:
        raise InputError(f"meta.json cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise InputError("meta.json is not what it should be") from None
    start, end = meta.minTime / 1000, meta.maxTime / 1000
    stats = meta.stats or _Stats()
    series, samples = stats.numSeries, stats.numSamples
    index = folder / "index"
    # The index begins with this magic number; a torn one would keep all blocks from being opened.
    try:
        with open_regular(index) as file:
            head = file.read(4)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise InputError(f"its index cannot be read ({error.strerror})") from None
    if head != b"\xba\xaa\xd7\x00" or size < 64:
        raise InputError("its index is corrupt")
    if not any(path.stat().st_size for path in (folder / "chunks").glob("[0-9]*")):
        raise InputError("its chunks are missing")
    return TsdbBlock(str(folder), start, end, series, samples)


def _has_wal(folder: Path) -> bool:
    return any(path.stat().st_size for path in _segments(folder / "wal"))


def _segments(wal: Path) -> list[Path]:
    return sorted(path for path in wal.glob("[0-9]*") if path.is_file()) if wal.is_dir() else []


def _freshly_written(wal: Path) -> bool:
    times = [path.stat().st_mtime for path in _segments(wal)]
    return bool(times) and abs(time.time() - max(times)) < FRESH_SECONDS


def lock_holder(lock: Path, proc: Path = Path("/proc")) -> int:
    """The process on this machine that holds a lock on the file; 0 if none does."""
    try:
        status = lock.stat()
        table = (proc / "locks").read_text()
    except OSError:
        return 0
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in table.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[5] == wanted and "->" not in fields[:2]:
            return int(fields[4]) if fields[4].lstrip("-").isdigit() else 0
    return 0


def listen_address(pid: int, proc: Path = Path("/proc")) -> str:
    """Where the Prometheus with this process id listens ("host:port"); empty if unknown."""
    line = memory_file(pid, "cmdline", proc)
    if line is None:
        return ""
    arguments = line.decode("utf-8", "replace")
    found = re.search(r"--web\.listen-address[=\0]([^\0]+)", arguments)
    address = found.group(1) if found else "0.0.0.0:9090"
    host, _, port = address.rpartition(":")
    return f"{'127.0.0.1' if host in {'', '0.0.0.0', '[::]'} else host}:{port}"

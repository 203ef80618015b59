"""``/proc/<pid>/stat`` and its like, parsed (``man 5 proc``)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

TICK = 1.0 / os.sysconf("SC_CLK_TCK")
"""Seconds in a clock tick."""
PAGE = os.sysconf("SC_PAGE_SIZE")
MAX_THREADS = 2048
"""Most threads of one process that are looked at."""

Key = tuple[int, int]
"""(pid, start): identifies one process even when pids are reused."""


class Stat(NamedTuple):
    """The fields of ``/proc/<pid>/stat`` that we use."""

    pid: int
    command: str
    state: str
    parent: int
    group: int
    session: int
    cpu_seconds: float
    """User and system time in seconds; for a process that of all its threads."""
    reaped_cpu_seconds: float
    """The same of the children whose ends it has waited for, and of theirs."""
    threads: int
    start: int
    """When it started, in clock ticks since boot."""
    rss_bytes: int
    wait_status: int | None
    """The status as ``wait()`` gives it, for a zombie whose status we may read; otherwise None or
    0."""

    @property
    def key(self) -> Key:
        """Identifies the process."""
        return (self.pid, self.start)


def parse_stat(data: bytes) -> Stat:
    """Parse one line. Raises ValueError if it is not what the kernel writes.

    The command is in parentheses and may itself contain spaces and parentheses: the last ``)`` ends
    it.
    """
    opening, closing = data.find(b"("), data.rfind(b")")
    fields = data[closing + 2 :].split()
    if opening < 0 or closing < opening or len(fields) < 22:
        raise ValueError(f"not a line of /proc/<pid>/stat: {data[:80]!r}")
    return Stat(
        pid=int(data[:opening]),
        command=data[opening + 1 : closing].decode("utf-8", "replace"),
        state=fields[0].decode("ascii", "replace"),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        cpu_seconds=(int(fields[11]) + int(fields[12])) * TICK,
        reaped_cpu_seconds=(int(fields[13]) + int(fields[14])) * TICK,
        threads=int(fields[17]),
        start=int(fields[19]),
        rss_bytes=max(0, int(fields[21])) * PAGE,
        wait_status=int(fields[49]) if len(fields) > 49 else None,
    )


def read_stat(
    pid: int, tid: int | None = None, proc: str | os.PathLike[str] = "/proc"
) -> Stat | None:
    """The stat of a process or of one of its tasks; None if it does not exist."""
    try:
        return parse_stat(read_small(_path(pid, tid, proc, "stat")))
    except (OSError, ValueError):
        return None


def task_ids(pid: int, proc: str | os.PathLike[str] = "/proc") -> list[int]:
    """The ids of a process's threads; empty if it is gone."""
    try:
        return [int(name) for name in os.listdir(f"{os.fspath(proc)}/{pid}/task")]
    except OSError:
        return []


def read_small(path: str) -> bytes:
    """What the kernel gives at once of a file: all of a small one. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, 1 << 16)
    finally:
        os.close(handle)


def _path(pid: int, tid: int | None, proc: str | os.PathLike[str], name: str) -> str:
    task = "" if tid is None else f"/task/{tid}"
    return f"{os.fspath(proc)}/{pid}{task}/{name}"


def all_stats(proc: Path = Path("/proc")) -> dict[int, Stat]:
    """Every process that is there now, by its pid."""
    pids = (int(path.name) for path in proc.iterdir() if path.name.isdigit())
    return {stat.pid: stat for pid in pids if (stat := read_stat(pid, proc=proc)) is not None}


def resident_bytes() -> int:
    """Memory of this process that is not swapped out (``/proc/self/statm``)."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * PAGE


class SchedStat(NamedTuple):
    """``/proc/<pid>/task/<tid>/schedstat``."""

    cpu_seconds: float
    delay_seconds: float
    """Seconds that the thread was runnable and had no CPU."""
    switches: int
    """How often the thread was put on a CPU."""


def parse_schedstat(data: bytes) -> SchedStat:
    """Parse its three numbers. Raises ValueError."""
    ran, waited, switches = data.split()[:3]
    if len(ran) > 20 or len(waited) > 20:
        raise ValueError("these are no times of the kernel's")
    return SchedStat(int(ran) / 1e9, int(waited) / 1e9, int(switches))


def read_schedstat(
    pid: int, tid: int | None = None, proc: str | os.PathLike[str] = "/proc"
) -> SchedStat | None:
    """The schedstat of a process's main thread or of one of its tasks; None if it does not exist,
    or the kernel does not say."""
    try:
        return parse_schedstat(read_small(_path(pid, tid, proc, "schedstat")))
    except (OSError, ValueError):
        return None

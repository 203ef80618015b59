"""Which processes wait for a lock on a file (flock(2), fcntl(2)), and which hold it.

The kernel lists both in ``/proc/locks`` (``man 5 proc``), which every user may read, but only for
locks that were taken on this machine. A lock belongs to the process that took it, also where one
that it has forked keeps it open; open file description locks belong to none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ray_sentinel.capture.connections import listed_ancestor
from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.model.connections import AwaitedAnswer
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.progress.proc.proc_stat import all_stats

MOST_LOCKS = 1024
"""Most waits of one node that are reported; the others are left out."""
MOST_FILES = 4096
"""Most open files of one process that are looked at for the name of a locked one."""


class LockWait(NamedTuple):
    """A line of ``/proc/locks`` about a process that waits, with who holds what it waits for."""

    waiter: int
    holder: int
    file: str
    """Device and inode, as in "fe:00:2214165"."""


def lock_waits(table: str) -> Iterator[LockWait]:
    """The waits in the text of ``/proc/locks``. Those that wait have the number of the lock, and
    follow it.

    >>> list(lock_waits("1: FLOCK ADVISORY WRITE 5 fe:00:7 0 EOF\\n"
    ...                 "1: -> FLOCK ADVISORY WRITE 6 fe:00:7 0 EOF"))
    [LockWait(waiter=6, holder=5, file='fe:00:7')]
    """
    holders: dict[str, int] = {}
    for line in table.splitlines():
        number, *fields = line.split()
        waits = fields[:1] == ["->"]
        fields = fields[1:] if waits else fields
        if len(fields) < 5 or not fields[3].isdigit():
            continue  # -1: of an open file description
        pid = int(fields[3])
        if not waits:
            holders[number] = pid
        elif (holder := holders.get(number)) is not None:
            yield LockWait(pid, holder, fields[4])


def awaited_locks(
    processes: Sequence[ProcessId], proc: Path = Path("/proc")
) -> tuple[AwaitedAnswer, ...]:
    """The locks on files that these processes, or descendants of them, await, of each other or of
    strangers."""
    now, waits = time.time(), list(lock_waits(kernel_text(proc / "locks")))
    if not waits:
        return ()
    stats = all_stats(proc)
    looked_at = {one.pid: one for one in processes}

    def found() -> Iterator[AwaitedAnswer]:
        for wait in waits:
            ends = [stats.get(pid) for pid in (wait.waiter, wait.holder)]
            asker, answerer = ends
            if asker is None or answerer is None or asker.pid == answerer.pid:
                continue
            who = listed_ancestor(asker, stats, looked_at)
            whom = listed_ancestor(answerer, stats, looked_at)
            if who is None:
                continue
            owner = ProcessId(who.host, answerer.pid, answerer.start)
            if who != owner:
                yield AwaitedAnswer(
                    who=who,
                    whom=whom or owner,
                    asker=ProcessId(who.host, asker.pid, asker.start),
                    answerer=owner,
                    since=now,
                    lock=_path(proc / str(answerer.pid), wait.file),
                    stranger="" if whom else answerer.command,
                )

    return tuple(islice(found(), MOST_LOCKS))


def _path(holder: Path, file: str) -> str:
    """The name of a locked file, which its holder has open; its inode if that is not to be known.
    The file itself is not touched, because its file system may be what does not answer."""
    inode = file.rpartition(":")[2]
    try:
        with os.scandir(holder / "fdinfo") as files:
            for one in islice(files, MOST_FILES):
                if any(
                    line.startswith("lock:") and file in line.split()
                    for line in kernel_text(Path(one.path)).splitlines()
                ):
                    return os.readlink(holder / "fd" / one.name)
    except OSError:  # it has ended, or is another user's
        pass
    return f"the file with inode {inode}"

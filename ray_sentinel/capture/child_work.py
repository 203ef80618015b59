"""How much CPU time the child processes have taken that a process waits for.

Who waits for a child stands still while that works. For which of its children a thread waits is
an argument of the system call in which it waits (``wait4``, ``waitid``); the kernel shows it to
whoever may trace the process, as py-spy must, too. Who reads a child's output, or waits for a pool
of processes, waits in other calls: then all of its children count, but for Ray's own. Who waits for
the network may wait for those with which it has a connection. Which of them coroutines await, if
any, no call tells: then the age of each is told, too, because a program that was started when the
job fell silent may be it.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from pathlib import Path

from ray_sentinel.capture.connections import asking_sockets, connected, unix_peers
from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.model.stacks import ChildWork
from ray_sentinel.progress.discovery.descendants import descendants
from ray_sentinel.progress.proc.proc_stat import (
    TICK,
    Stat,
    all_stats,
    read_schedstat,
    read_stat,
    task_ids,
)

_WAIT4 = {"x86_64": "61", "aarch64": "260"}
"""The number of the system call, by machine."""
_WAITID = {"x86_64": "247", "aarch64": "95"}
_P_PID = 1
"""The kind of ``waitid`` that waits for one process (``linux/wait.h``)."""
MOST_PROCESSES = 256
"""Processes below one that are looked at; the others are left out."""
MOST_THREADS = 256
"""Threads of each that are looked at."""


class KernelTables:
    """What the kernel tells of all processes and sockets of this node, each read once, when it is
    first needed."""

    @functools.cached_property
    def stats(self) -> Mapping[int, Stat]:
        """By pid."""
        return all_stats()

    @functools.cached_property
    def asking(self) -> Mapping[int, int]:
        """``asking_sockets``."""
        return asking_sockets()

    @functools.cached_property
    def unix(self) -> Mapping[int, int]:
        """``unix_peers``."""
        return unix_peers()


def child_work(pid: int, tid: int, tables: KernelTables | None = None) -> ChildWork | None:
    """How long the processes below ``pid`` have run: those at and below the child for whose end its
    thread ``tid`` waits, or else all. None if there are none, or the kernel does not tell."""
    stats = (tables or KernelTables()).stats
    awaited = _awaited(kernel_text(Path(f"/proc/{pid}/task/{tid}/syscall")))
    child = read_stat(awaited) if awaited is not None else None
    above = [child.pid] if child is not None and child.parent == pid else []
    ran = _all_ran(
        (*above, *(one.pid for one in descendants(above[0] if above else pid, stats=stats)))
    )
    return ChildWork(at=time.time(), ran=ran) if ran else None


def answering_child_work(pid: int, tables: KernelTables) -> ChildWork | None:
    """The same of the processes below ``pid`` from which it may await an answer over a connection,
    and of those below them. None if there are none. Of a Unix socket, the kernel does not tell who
    sent last."""
    below = [one.pid for one in descendants(pid, stats=tables.stats)]
    others = {**tables.unix, **tables.asking} if below else {}
    asked = connected(pid, below[:MOST_PROCESSES], others)
    ran = _all_ran(_with_those_below(asked, below, tables.stats))
    return ChildWork(at=time.time(), ran=ran) if ran else None


def coroutines_child_work(pid: int, tables: KernelTables) -> ChildWork | None:
    """The same of all processes below ``pid``, with their ages; None if there are none. A program
    has Unix sockets for its output, if an event loop started it, so these tell nothing here."""
    below = islice(descendants(pid, stats=tables.stats), MOST_PROCESSES)
    starts = {one.pid: one.branch_start for one in below}
    if not starts:
        return None
    asked = connected(pid, starts, tables.asking)
    owing = _with_those_below(asked, starts, tables.stats)
    ran, uptime = _all_ran(starts), time.clock_gettime(time.CLOCK_BOOTTIME)
    ages = {one: 0.0 if one in owing else uptime - starts[one] * TICK for one in ran}
    return ChildWork(at=time.time(), ran=ran, ages=ages) if ran else None


def _with_those_below(
    found: Collection[int], below: Iterable[int], stats: Mapping[int, Stat]
) -> set[int]:
    """Some of the processes ``below`` one, which come after those that are above them, and all that
    are below these."""
    all_found = set(found)
    for one in below if found else ():
        if one in stats and stats[one].parent in all_found:
            all_found.add(one)
    return all_found


def _all_ran(pids: Iterable[int]) -> dict[int, float]:
    found = ((pid, _ran(pid)) for pid in islice(pids, MOST_PROCESSES))
    return {pid: seconds for pid, seconds in found if seconds is not None}


def _ran(pid: int) -> float | None:
    """Seconds for which a process has run or waited for a CPU, and its ended children have run."""
    stat = read_stat(pid)
    schedules = (read_schedstat(pid, tid) for tid in task_ids(pid)[:MOST_THREADS])
    ran = [one.cpu_seconds + one.delay_seconds for one in schedules if one is not None]
    return sum(ran) + stat.reaped_cpu_seconds if ran and stat is not None else None


def _awaited(call: str) -> int | None:
    """The child for whose end alone a thread waits, by its line in ``/proc``: the number of its
    system call and the arguments. None if it waits in no such call; no pid if for any child."""
    number, *arguments = call.split() or [""]
    machine = os.uname().machine
    try:
        first, second = (int(one, 16) for one in arguments[:2])
    except ValueError:  # "running", or not ours to read
        return None
    if number == _WAIT4.get(machine):
        return first
    return second if number == _WAITID.get(machine) and first == _P_PID else None

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

import os
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

from ray_sentinel.capture.connections import answering
from ray_sentinel.capture.states import read_schedule
from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.model.stacks import ChildWork
from ray_sentinel.progress.discovery.descendants import descendants
from ray_sentinel.progress.proc.proc_stat import TICK, Stat, read_stat

_WAIT4 = {"x86_64": "61", "aarch64": "260"}
"""The number of the system call, by machine."""
_WAITID = {"x86_64": "247", "aarch64": "95"}
_P_PID = 1
"""The kind of ``waitid`` that waits for one process (``linux/wait.h``)."""
MOST_PROCESSES = 256
"""Processes below one that are looked at; the others are left out."""
MOST_THREADS = 256
"""Threads of each that are looked at."""


def child_work(pid: int, tid: int, stats: Mapping[int, Stat] | None = None) -> ChildWork | None:
    """How long the processes below ``pid`` have run: those at and below the child for whose end its
    thread ``tid`` waits, or else all. None if there are none, or the kernel does not tell.
    ``stats`` are those of all processes by pid, where they have just been read."""
    awaited = _awaited(kernel_text(Path(f"/proc/{pid}/task/{tid}/syscall")))
    child = read_stat(awaited) if awaited is not None else None
    above = [child.pid] if child is not None and child.parent == pid else []
    ran = _all_ran(
        (*above, *(one.pid for one in descendants(above[0] if above else pid, stats=stats)))
    )
    return ChildWork(at=time.time(), ran=ran) if ran else None


def answering_child_work(
    pid: int, ends: Mapping[int, int], stats: Mapping[int, Stat] | None = None
) -> ChildWork | None:
    """The same of the processes below ``pid`` from which it may await an answer, and of those below
    them; ``ends`` are ``awaited_ends``. None if there are none."""
    ran = _all_ran(_answering(pid, [one.pid for one in descendants(pid, stats=stats)], ends, stats))
    return ChildWork(at=time.time(), ran=ran) if ran else None


def coroutines_child_work(
    pid: int, ends: Mapping[int, int], stats: Mapping[int, Stat] | None = None
) -> ChildWork | None:
    """The same of all processes below ``pid``, with their ages, of which those that may answer have
    none; None if there are none."""
    starts = {one.pid: one.branch_start for one in descendants(pid, stats=stats)}
    ran, answering = _all_ran(starts), _answering(pid, starts, ends, stats)
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    ages = {one: 0.0 if one in answering else uptime - starts[one] * TICK for one in ran}
    return ChildWork(at=time.time(), ran=ran, ages=ages) if ran else None


def _answering(
    pid: int,
    below: Iterable[int],
    ends: Mapping[int, int],
    stats: Mapping[int, Stat] | None,
) -> dict[int, None]:
    found = answering(pid, below, ends)
    more = (one.pid for above in found for one in descendants(above, stats=stats))
    return dict.fromkeys((*sorted(found), *more))


def _all_ran(pids: Iterable[int]) -> dict[int, float]:
    found = ((pid, _ran(pid)) for pid in islice(pids, MOST_PROCESSES))
    return {pid: seconds for pid, seconds in found if seconds is not None}


def _ran(pid: int) -> float | None:
    """Seconds for which a process has run or waited for a CPU, and its ended children have run."""
    stat = read_stat(pid)
    schedules = (read_schedule(pid, tid) for tid in islice(_threads(pid), MOST_THREADS))
    ran = [one.cpu_seconds + one.delay_seconds for one in schedules if one is not None]
    return sum(ran) + stat.reaped_cpu_seconds if ran and stat is not None else None


def _threads(pid: int) -> Iterable[int]:
    try:
        return map(int, os.listdir(f"/proc/{pid}/task"))
    except OSError:  # it has ended
        return ()


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

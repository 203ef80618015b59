"""How much the processes have run for whose end somebody waits: programs that it has started.

Who waits for a child process stands still as long as that works. For which of its children a
thread waits is an argument of the system call in which it waits (``wait4``, ``waitid``); the kernel
shows it to whoever may trace the process, as py-spy must, too. Who reads a child's output waits in
another call: then all of its children count. Who waits for a pool of processes waits for a thread
of its own, which hands on what they bring: then those count that run the same interpreter.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from ray_sentinel.capture.connections import OF_RAY
from ray_sentinel.capture.states import read_schedule
from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.progress.proc.proc_stat import Stat, all_stats

_WAIT4 = {"x86_64": "61", "aarch64": "260"}
"""The number of the system call, by machine."""
_WAITID = {"x86_64": "247", "aarch64": "95"}
_P_PID = 1
"""The kind of ``waitid`` that waits for one process (``linux/wait.h``)."""
MOST_THREADS = 4096
"""Threads of the processes below one that are looked at; the others are left out."""


class Descendants:
    """The processes of a machine at one moment, by the one that has started them."""

    def __init__(self) -> None:
        self._children: dict[int, list[Stat]] = defaultdict(list)
        for stat in all_stats().values():
            self._children[stat.parent].append(stat)

    def ran_for(self, pid: int, tid: int) -> float | None:
        """Seconds for which the processes below ``pid`` have run, or waited for a CPU: those at and
        below the child for whose end its thread ``tid`` waits, or all but Ray's own. None if there
        are none, or the kernel does not tell."""
        children = self._children.get(pid, [])
        awaited = _awaited(kernel_text(Path(f"/proc/{pid}/task/{tid}/syscall")))
        chosen = [one for one in children if one.pid == awaited] or [
            one for one in children if not one.command.startswith(OF_RAY)
        ]
        return self._ran(chosen)

    def ran_in_pools(self, pid: int) -> float | None:
        """The same of those that run the same interpreter as ``pid``, as processes of a pool do,
        and of what is below them."""
        own, children = _program(pid), self._children.get(pid, [])
        return self._ran(one for one in children if own and _program(one.pid) == own)

    def _ran(self, processes: Iterable[Stat]) -> float | None:
        ran = [
            found.cpu_seconds + found.delay_seconds
            for one, thread in islice(_threads(self._all_below(processes)), MOST_THREADS)
            if (found := read_schedule(one, thread)) is not None
        ]
        return sum(ran) if ran else None

    def _all_below(self, processes: Iterable[Stat]) -> Iterator[int]:
        """Some processes, and all that descend from them, each once: of pids that were given anew
        while they were read, one may seem to be below itself."""
        waiting, found = [one.pid for one in processes], set[int]()
        while waiting:
            if (one := waiting.pop()) not in found:
                found.add(one)
                yield one
                waiting += [child.pid for child in self._children.get(one, ())]


def _program(pid: int) -> str:
    """The file that a process runs; empty if it has ended, or is not ours. Its command line would
    tell more, but reading that can hang with the process."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _awaited(call: str) -> int | None:
    """The child for whose end alone a thread waits, by its line in ``/proc``: the number of its
    system call and the arguments; None if it waits for none, or for any of several."""
    number, *arguments = call.split() or [""]
    machine = os.uname().machine
    try:
        first, second = (int(one, 16) for one in arguments[:2])
    except ValueError:  # "running", or not ours to read
        return None
    if number == _WAIT4.get(machine):
        return first
    return second if number == _WAITID.get(machine) and first == _P_PID else None


def _threads(pids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The pid and the id of each thread of some processes."""
    for pid in pids:
        try:
            yield from ((pid, int(tid)) for tid in os.listdir(f"/proc/{pid}/task"))
        except OSError:  # it has ended
            continue

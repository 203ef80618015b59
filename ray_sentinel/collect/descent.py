"""The descendants of a process: found, killed, and reaped if nobody else reaps them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping

from ray_sentinel import signals
from ray_sentinel.progress.proc.proc_stat import Key, Stat, all_stats

REAP_SECONDS = 60.0
"""Seconds between two searches for children that nobody waits for."""
_SUBREAPER = 36
"""The number of ``PR_SET_CHILD_SUBREAPER`` (``linux/prctl.h``)."""
_ROUNDS = 8
"""Searches for processes that were started while the others were being ended."""


class Adopted:
    """Reaps orphaned descendants of this process.

    This process is made the subreaper of everything it starts (``man 2 PR_SET_CHILD_SUBREAPER``):
    processes whose parents have ended become its children, so that the runner finds all of them. As
    no code waits for such children, their zombies are reaped here.
    """

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        self._seen: set[Key] = set()
        self._due = 0.0

    def reap(self) -> None:
        """Reap zombies that nobody has waited for since the last search; at most one search in
        ``REAP_SECONDS``."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + REAP_SECONDS
        me = os.getpid()
        ended = {
            stat.key for stat in all_stats().values() if stat.parent == me and stat.state == "Z"
        }
        for pid, _ in ended & self._seen:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._seen = ended - self._seen


def below(pid: int, stats: Mapping[int, Stat]) -> set[Key]:
    """The children of a process, their children and so on."""
    children: dict[int, list[Stat]] = {}
    for stat in stats.values():
        children.setdefault(stat.parent, []).append(stat)
    found: set[Key] = set()
    waiting = [pid]
    while waiting:
        for stat in children.get(waiting.pop(), []):
            if stat.key not in found:
                found.add(stat.key)
                waiting.append(stat.pid)
    return found


def kill_below(pid: int) -> None:
    """Send SIGKILL to all descendants of a process."""
    kill_all(lambda: below(pid, all_stats()))


def kill_all(find: Callable[[], Iterable[Key]]) -> None:
    """Send SIGKILL to the processes found, and to those that they started meanwhile."""
    seen: set[Key] = set()
    for _ in range(_ROUNDS):
        new = [key for key in find() if key not in seen]
        for pid, start in new:
            with contextlib.suppress(PermissionError):
                signals.send(pid, start, signal.SIGKILL)
        if not new:
            return
        seen.update(new)

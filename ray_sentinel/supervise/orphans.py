"""What an attempt left running when its keeper was killed: found by its environment.

A keeper's end kills the command itself (by its parent-death signal), but not what the command
started: torchrun's ranks, each in a session of its own, would go on beside the next attempt.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from ray_sentinel.kernel_files import parse_environ
from ray_sentinel.progress.proc_stat import Stat, all_stats
from ray_sentinel.supervise.descendants import Process, is_rays

GRACE = 5.0
"""Seconds after SIGTERM."""
KILL_SECONDS = 10.0
"""After SIGKILL: who is there still hangs in the kernel."""


def orphans(told: Mapping[str, str], since: int, proc: Path = Path("/proc")) -> list[Process]:
    """Living processes that were started with these variables, at ``since`` (ticks) or later.

    Left out are Ray's daemons with all below them, and this process with all above it.
    """
    stats = all_stats(proc)
    spared = {one.pid for one in _line(os.getpid(), stats)}
    found = []
    for stat in stats.values():
        if stat.state in ("Z", "X") or stat.start < since or stat.pid in spared:
            continue
        if not told.items() <= _variables(proc / str(stat.pid)).items():
            continue
        if not any(is_rays(one, proc) for one in _line(stat.pid, stats)):
            found.append(Process(stat.pid, stat.start, stat.command))
    return sorted(found, key=lambda one: one.pid)


def end_orphans(told: Mapping[str, str], since: int) -> tuple[list[Process], list[Process]]:
    """End them, SIGTERM first: those that were there, and those that are still."""
    there = orphans(told, since)
    for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, KILL_SECONDS)):
        until = time.monotonic() + seconds
        while (now := orphans(told, since)) and time.monotonic() < until:
            for one in now:
                one.signal(number)
            time.sleep(0.2)
    return there, orphans(told, since)


def _line(pid: int, stats: Mapping[int, Stat]) -> list[Stat]:
    """The process, its parent, and so on."""
    line: list[Stat] = []
    while (stat := stats.get(pid)) is not None and stat not in line:
        line.append(stat)
        pid = stat.parent
    return line


def _variables(process: Path) -> dict[str, str]:
    try:
        return parse_environ((process / "environ").read_bytes())
    except OSError:
        return {}  # it has ended, or is somebody else's

"""Processes that an attempt left behind when its keeper was killed, found by their environment.

The end of a keeper kills the command itself (by its parent-death signal), but not what the command
started: torchrun's ranks, each in a session of its own, would run beside the next attempt.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from ray_sentinel.kernel_files import parse_environ
from ray_sentinel.progress.discovery.descendants import Descendant, rays
from ray_sentinel.progress.proc.proc_stat import Stat, all_stats
from ray_sentinel.progress.proc.process_memory import memory_files

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""
KILL_SECONDS = 10.0
"""Seconds after SIGKILL from which a remaining process counts as hanging in the kernel."""


def orphans(told: Mapping[str, str], since: int, proc: Path = Path("/proc")) -> list[Descendant]:
    """Living processes that were started with these variables, at ``since`` (ticks) or later.

    Ray's daemons and everything below them are left out, and so are this process and everything
    above it.
    """
    stats = all_stats(proc)
    spared = {one.pid for one in _line(os.getpid(), stats)}
    asked = [
        stat
        for stat in stats.values()
        if stat.state not in ("Z", "X") and stat.start >= since and stat.pid not in spared
    ]
    # It cannot be learned whose a process is that hangs with its memory locked: it is left alone.
    environs = memory_files((stat.pid for stat in asked), "environ", proc)
    ours = [stat for stat in asked if told.items() <= _variables(environs, stat.pid).items()]
    lines = {stat.pid: _line(stat.pid, stats) for stat in ours}
    of_ray = rays({one.pid: one for line in lines.values() for one in line}.values(), proc)
    found = [
        Descendant(stat.pid, stat.start, stat.command, stat.start)
        for stat in ours
        if not any(one.pid in of_ray for one in lines[stat.pid])
    ]
    return sorted(found, key=lambda one: one.pid)


def end_orphans(told: Mapping[str, str], since: int) -> tuple[list[Descendant], list[Descendant]]:
    """End them, with SIGTERM first. Returns those that existed, and those that still do."""
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


def _variables(environs: Mapping[int, bytes], pid: int) -> dict[str, str]:
    return parse_environ(environs.get(pid, b""))

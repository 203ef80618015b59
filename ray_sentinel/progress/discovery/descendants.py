"""All descendants of a process, by ``/proc``, without Ray's own processes and their descendants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ray_sentinel import signals
from ray_sentinel.progress.discovery.launchers import is_rays_command
from ray_sentinel.progress.proc.proc_stat import Stat, all_stats
from ray_sentinel.progress.proc.process_memory import memory_files

_DAEMONS = frozenset({"raylet", "gcs_server"})
_TITLES = ("ray-dashboard-",)
"""Prefixes of the names of further daemons of Ray, which set their names themselves."""


class Descendant(msgspec.Struct, frozen=True):
    """One process; ``start`` distinguishes it from a later one with its pid."""

    pid: int
    start: int
    command: str
    branch_start: int
    """When the child was started that it is, or is below, in clock ticks since boot."""

    def signal(self, number: int) -> None:
        """Signal it, if it is still the same process."""
        with contextlib.suppress(OSError):
            signals.send(self.pid, self.start, number)


def rays(stats: Iterable[Stat], proc: Path = Path("/proc")) -> set[int]:
    """The pids of Ray's daemons among them, which may outlive the process that started the node.

    If the memory of a process is locked, its command line is not waited for; its name has to do.
    """
    asked = list(stats)
    lines = memory_files((stat.pid for stat in asked), "cmdline", proc)
    return {
        stat.pid
        for stat in asked
        if stat.command in _DAEMONS
        or stat.command.startswith(_TITLES)
        or is_rays_command(lines.get(stat.pid, b"").decode("utf-8", "replace").split("\0"))
    }


def descendants(
    root: int, proc: Path = Path("/proc"), stats: Mapping[int, Stat] | None = None
) -> list[Descendant]:
    """The living children, their children and so on, each once: of pids that were given anew while
    they were read, one may seem to be below itself. Zombies are left out. ``stats`` are those of
    all processes by pid, where they have just been read."""
    children: dict[int, list[Stat]] = {}
    for stat in (all_stats(proc) if stats is None else stats).values():
        children.setdefault(stat.parent, []).append(stat)
    found: list[Descendant] = []
    branches: dict[int, int] = {}
    below = [root]
    while below:
        level = [stat for parent in below for stat in children.pop(parent, [])]
        spared = rays(level, proc)
        mine = [stat for stat in level if stat.pid not in spared]
        branches |= {stat.pid: branches.get(stat.parent, stat.start) for stat in mine}
        found += [
            Descendant(stat.pid, stat.start, stat.command, branches[stat.pid])
            for stat in mine
            if stat.state not in ("Z", "X")
        ]
        below = [stat.pid for stat in mine]
    return found

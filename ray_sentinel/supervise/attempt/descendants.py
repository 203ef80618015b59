"""All descendants of a process, by ``/proc``, without Ray's own processes and their descendants."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from ray_sentinel import signals
from ray_sentinel.progress.discovery.launchers import rays
from ray_sentinel.progress.proc.proc_stat import Stat, all_stats


class Descendant(msgspec.Struct, frozen=True):
    """One process; ``start`` distinguishes it from a later one with its pid."""

    pid: int
    start: int
    command: str

    def signal(self, number: int) -> None:
        """Signal it, if it is still the same process."""
        with contextlib.suppress(OSError):
            signals.send(self.pid, self.start, number)


def descendants(root: int, proc: Path = Path("/proc")) -> list[Descendant]:
    """The living children, their children and so on; zombies are left out."""
    children: dict[int, list[Stat]] = {}
    for stat in all_stats(proc).values():
        children.setdefault(stat.parent, []).append(stat)
    found: list[Descendant] = []
    below = [root]
    while below:
        level = [stat for parent in below for stat in children.get(parent, [])]
        spared = rays(level, proc)
        mine = [stat for stat in level if stat.pid not in spared]
        found += [Descendant(s.pid, s.start, s.command) for s in mine if s.state not in ("Z", "X")]
        below = [stat.pid for stat in mine]
    return found

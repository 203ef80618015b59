"""All processes below one, by ``/proc``; those of Ray itself, and what is below them, left out."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from ray_sentinel import signals
from ray_sentinel.progress.launchers import is_rays_command
from ray_sentinel.progress.proc_stat import Stat, all_stats

_DAEMONS = frozenset({"raylet", "gcs_server"})


class Process(msgspec.Struct, frozen=True):
    """One process; ``start`` tells it from a later one with its pid."""

    pid: int
    start: int
    command: str

    def signal(self, number: int) -> None:
        """Signal it, if it is still the same process."""
        with contextlib.suppress(OSError):
            signals.send(self.pid, self.start, number)


def is_rays(stat: Stat, proc: Path = Path("/proc")) -> bool:
    """Whether it is one of Ray's daemons, which may outlive whoever started the node."""
    if stat.command in _DAEMONS:
        return True
    try:
        line = (proc / str(stat.pid) / "cmdline").read_bytes()
    except OSError:
        return False  # it has ended
    return is_rays_command(line.decode("utf-8", "replace").split("\0"))


def descendants(root: int, proc: Path = Path("/proc")) -> list[Process]:
    """Children, their children and so on, that live; zombies are left out."""
    children: dict[int, list[Stat]] = {}
    for stat in all_stats(proc).values():
        children.setdefault(stat.parent, []).append(stat)
    found: list[Process] = []
    below = [root]
    while below:
        for stat in children.get(below.pop(), []):
            if is_rays(stat, proc):
                continue
            below.append(stat.pid)
            if stat.state not in ("Z", "X"):
                found.append(Process(stat.pid, stat.start, stat.command))
    return found

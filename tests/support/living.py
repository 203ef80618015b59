"""Which processes live, and which descend from which, as /proc tells."""

from __future__ import annotations

from ray_sentinel.progress.proc.proc_stat import all_stats, read_stat


def descendants(pid: int) -> list[int]:
    """All living processes below ``pid``."""
    parents = {stat.pid: stat.parent for stat in all_stats().values() if stat.state != "Z"}
    found: list[int] = []
    level = [pid]
    while level := [child for child, parent in parents.items() if parent in level]:
        found += level
    return found


def alive(pid: int) -> bool:
    """Whether it is there, and no zombie."""
    stat = read_stat(pid)
    return stat is not None and stat.state not in "ZX"

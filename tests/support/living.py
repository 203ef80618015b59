"""Which processes live, and which descend from which, as /proc tells."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.progress.proc.proc_stat import parse_stat


def descendants(pid: int) -> list[int]:
    """All living processes below ``pid``."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = parse_stat((folder / "stat").read_bytes())
            except (OSError, ValueError):
                continue
            if stat.state != "Z":
                parents[stat.pid] = stat.parent
    found: list[int] = []
    level = [pid]
    while level := [child for child, parent in parents.items() if parent in level]:
        found += level
    return found


def alive(pid: int) -> bool:
    """Whether it is there, and no zombie."""
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_bytes()).state not in "ZX"
    except (OSError, ValueError):
        return False

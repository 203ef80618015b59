"""What processes cost, read from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def pss_mebibytes(pid: int) -> float:
    """Proportional set size: memory shared by n processes counts 1/n for each."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of its children that have ended, from schedstat where
    that is finer (the main thread's), else in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _TICKS


def children(pid: int) -> list[int]:
    """The living children of a process, by pid."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return sorted(found)


def command(pid: int) -> str:
    """The last word of a process's command line: a collector's name."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return next((word.decode() for word in reversed(words) if word), "")

"""Facts about a process that identify its record."""

from __future__ import annotations

import os
from pathlib import Path

from ray_sentinel.kernel_files import boot_id
from ray_sentinel.progress.proc.proc_stat import parse_stat, read_stat

MAX_DEPTH = 64
"""Most ancestors that are looked at; deeper chains do not occur."""


def start_ticks(pid: int | str = "self") -> int:
    """Field 22 of ``/proc/<pid>/stat``: when the process started, in clock ticks since boot.

    Raises OSError if the process does not exist.
    """
    return parse_stat(Path(f"/proc/{pid}/stat").read_bytes()).start


def boot_number(proc: Path = Path("/proc")) -> int:
    """64 bits of the boot id, to recognise records of an earlier boot; 0 if it is hidden."""
    try:
        return int(boot_id(proc).replace("-", "")[:16], 16)
    except ValueError:
        return 0


def pid_namespace(proc: Path = Path("/proc")) -> int:
    """The inode of our PID namespace: pids mean something only inside it; 0 where hidden."""
    try:
        return os.stat(proc / "self/ns/pid").st_ino
    except OSError:
        return 0


def raylet_above(pid: int, proc: Path = Path("/proc")) -> int:
    """The pid of the raylet that the process descends from; 0 if it descends from none."""
    for _ in range(MAX_DEPTH):
        stat = read_stat(pid, proc=proc)
        if stat is None or stat.command == "raylet":
            return 0 if stat is None else pid
        if stat.parent <= 1:
            return 0
        pid = stat.parent
    return 0

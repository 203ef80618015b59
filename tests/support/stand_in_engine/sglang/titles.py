"""A process's title, written where its command line is, and its name, as setproctitle does."""

from __future__ import annotations

import ctypes
from pathlib import Path

ARGUMENTS_BEGIN, ARGUMENTS_END = 45, 46
"""``arg_start`` and ``arg_end`` in /proc/PID/stat, counted after the command (proc(5): 48, 49)."""
PR_SET_NAME = 15
"""``prctl(2)``: the kernel cuts the name to 15 characters."""


def set_title(title: str) -> None:
    """Cut to the room that there is."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[ARGUMENTS_BEGIN]), int(fields[ARGUMENTS_END])
    room = end - begin
    ctypes.memmove(begin, title.encode()[: room - 1].ljust(room, b"\0"), room)
    ctypes.CDLL(None).prctl(PR_SET_NAME, title.encode(), 0, 0, 0)

"""Until when a thread sleeps, as the kernel knows it.

``time.sleep`` hands the kernel the moment at which to wake the thread (``clock_nanosleep`` with
``TIMER_ABSTIME``, from Python 3.11 on). The kernel shows the arguments of the system call in which
a thread waits to whoever may trace the process, as py-spy must, too. A sleep whose argument is how
long it lasts, and not until when, tells nothing: when it began is not known.
"""

from __future__ import annotations

import os
import struct
import time

from ray_sentinel.progress.proc.process_memory import memory_at

_CLOCK_NANOSLEEP = {"x86_64": 230, "aarch64": 115}
"""The number of the system call, by machine."""
_TIMER_ABSTIME = 1
_CLOCKS = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)
_TIMESPEC = struct.Struct("=qq")
"""Seconds and nanoseconds."""


def wakes_at(pid: int, tid: int) -> float | None:
    """The Unix time at which the kernel ends the sleep of a thread; None if it does not sleep, or
    that cannot be read."""
    try:
        with open(f"/proc/{pid}/task/{tid}/syscall", "rb") as file:
            clock, address = _absolute_sleep(file.read())
        # Another time namespace has clocks of its own.
        if os.readlink(f"/proc/{pid}/ns/time") != os.readlink("/proc/self/ns/time"):
            return None
        until = memory_at(pid, address, _TIMESPEC.size)
        seconds, nanoseconds = _TIMESPEC.unpack(until or b"")
    except (OSError, ValueError, struct.error):
        return None
    left: float = seconds + nanoseconds / 1e9 - time.clock_gettime(clock)
    return time.time() + left


def _absolute_sleep(line: bytes) -> tuple[int, int]:
    """The clock and the address of the time up to which a thread sleeps, from its ``syscall``.
    Raises ValueError if it is in no such sleep."""
    number, *rest = line.split()
    if number != b"%d" % _CLOCK_NANOSLEEP.get(os.uname().machine, -1):
        raise ValueError("no sleep")
    clock, flags, address = (int(one, 16) for one in rest[:3])
    if clock not in _CLOCKS or not flags & _TIMER_ABSTIME:
        raise ValueError("no sleep up to a known time")
    return clock, address

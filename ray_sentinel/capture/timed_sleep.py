"""Until when a thread sleeps, as the kernel knows it.

``time.sleep`` hands the kernel the moment at which to wake the thread (``clock_nanosleep`` with
``TIMER_ABSTIME``, from Python 3.11 on), and so does a wait for a lock, an event or a queue that has
a timeout (``futex`` with ``FUTEX_WAIT_BITSET``). An event loop that has nothing to do before its
next timer (``asyncio.sleep``) tells it how long to wait (``epoll_wait``), but not since when; it
waits for no longer than that from now on. The kernel shows the arguments of the system call in
which a thread waits to whoever may trace the process, as py-spy must, too.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping

from ray_sentinel.progress.proc.process_memory import memory_at

_CLOCK_NANOSLEEP = {"x86_64": (230,), "aarch64": (115,)}
"""The numbers of each system call, by machine."""
_FUTEX = {"x86_64": (202,), "aarch64": (98,)}
_EPOLL_WAIT = {"x86_64": (232, 281), "aarch64": (22,)}
"""``epoll_wait`` and ``epoll_pwait``."""
_TIMER_ABSTIME = 1
_FUTEX_CMD_MASK, _FUTEX_WAIT_BITSET, _FUTEX_CLOCK_REALTIME = 0x7F, 9, 256
_CLOCKS = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)
_TIMESPEC = struct.Struct("=qq")
"""Seconds and nanoseconds."""


def wakes_at(pid: int, tid: int) -> float | None:
    """The Unix time at which the kernel ends the sleep of a thread at the latest; None if it is in
    no wait that ends by itself, or that cannot be read."""
    try:
        with open(f"/proc/{pid}/task/{tid}/syscall", "rb") as file:
            number, *rest = file.read().split()
        call, arguments = int(number), [int(one, 16) for one in rest]
        if _is_among(call, _EPOLL_WAIT):
            return _in_milliseconds(arguments[3])
        clock, address = _absolute(call, arguments)
        # Another time namespace has clocks of its own.
        if os.readlink(f"/proc/{pid}/ns/time") != os.readlink("/proc/self/ns/time"):
            return None
        until = memory_at(pid, address, _TIMESPEC.size)
        seconds, nanoseconds = _TIMESPEC.unpack(until or b"")
    except (OSError, ValueError, IndexError, struct.error):
        return None
    left: float = seconds + nanoseconds / 1e9 - time.clock_gettime(clock)
    return time.time() + left


def _is_among(call: int, numbers: Mapping[str, tuple[int, ...]]) -> bool:
    return call in numbers.get(os.uname().machine, ())


def _in_milliseconds(argument: int) -> float | None:
    """The Unix time so many milliseconds from now; None if the argument, a C ``int``, is negative,
    which stands for a wait without an end."""
    milliseconds = argument & 0xFFFFFFFF
    return None if milliseconds >= 1 << 31 else time.time() + milliseconds / 1000.0


def _absolute(call: int, arguments: list[int]) -> tuple[int, int]:
    """The clock and the address of the time up to which a thread waits. Raises ValueError if it is
    in no such wait, IndexError if arguments are missing."""
    first, flags, third, fourth = arguments[:4]
    if _is_among(call, _CLOCK_NANOSLEEP) and first in _CLOCKS and flags & _TIMER_ABSTIME:
        return first, third
    if _is_among(call, _FUTEX) and flags & _FUTEX_CMD_MASK == _FUTEX_WAIT_BITSET and fourth:
        clock = time.CLOCK_REALTIME if flags & _FUTEX_CLOCK_REALTIME else time.CLOCK_MONOTONIC
        return clock, fourth
    raise ValueError("no wait up to a known time")

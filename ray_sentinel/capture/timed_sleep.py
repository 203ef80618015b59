"""Until when a thread waits at the latest, as the kernel knows it.

``time.sleep`` hands the kernel the moment at which to wake the thread (``clock_nanosleep`` with
``TIMER_ABSTIME``, from Python 3.11 on), and so does a wait for a lock, an event or a queue that has
a timeout (``futex`` with ``FUTEX_WAIT_BITSET``). Who waits for descriptors (a socket, a pipe, the
next timer of an event loop) tells it how long to wait (``poll``, ``select``, ``epoll_wait``), but
not since when; it waits for no longer than that from now on. The kernel shows the arguments of the
system call in which a thread waits to whoever may trace the process, as py-spy must, too.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping

from ray_sentinel.progress.proc.process_memory import memory_at

_CLOCK_NANOSLEEP = {"x86_64": 230, "aarch64": 115}
"""The number of each system call, by machine."""
_FUTEX = {"x86_64": 202, "aarch64": 98}
_MILLISECONDS = 0
"""The argument is itself the number of milliseconds."""
_MICRO, _NANO = 10**6, 10**9
"""It is the address of seconds and of so many parts of one; 0 if the wait has no end."""
_DURATIONS: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "x86_64": {
        7: (2, _MILLISECONDS),  # poll
        23: (4, _MICRO),  # select
        232: (3, _MILLISECONDS),  # epoll_wait
        270: (4, _NANO),  # pselect6
        271: (2, _NANO),  # ppoll
        281: (3, _MILLISECONDS),  # epoll_pwait
        441: (3, _NANO),  # epoll_pwait2
    },
    "aarch64": {
        22: (3, _MILLISECONDS),  # epoll_pwait
        72: (4, _NANO),  # pselect6
        73: (2, _NANO),  # ppoll
        441: (3, _NANO),  # epoll_pwait2
    },
}
"""The calls that are told how long to wait: by which of their arguments, and in which form."""
_TIMER_ABSTIME = 1
_FUTEX_CMD_MASK, _FUTEX_WAIT_BITSET, _FUTEX_CLOCK_REALTIME = 0x7F, 9, 256
_CLOCKS = (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)
_TIME = struct.Struct("=qq")
"""The layout of ``timespec`` and ``timeval``: seconds and parts of one."""


def wakes_at(pid: int, tid: int) -> float | None:
    """The Unix time at which the kernel ends the wait of a thread at the latest; None if it is in
    no wait that ends by itself, or that cannot be read."""
    try:
        with open(f"/proc/{pid}/task/{tid}/syscall", "rb") as file:
            number, *rest = file.read().split()
        call, arguments = int(number), [int(one, 16) for one in rest]
        lasts = _DURATIONS.get(os.uname().machine, {}).get(call)
        if lasts is not None:
            return time.time() + _duration(pid, arguments[lasts[0]], lasts[1])
        clock, address = _absolute(call, arguments)
        # Another time namespace has clocks of its own.
        if os.readlink(f"/proc/{pid}/ns/time") != os.readlink("/proc/self/ns/time"):
            return None
        return time.time() + _seconds_at(pid, address, _NANO) - time.clock_gettime(clock)
    except (OSError, ValueError, IndexError, struct.error):
        return None


def _duration(pid: int, argument: int, form: int) -> float:
    """The seconds that an argument stands for. Raises ValueError where it stands for a wait without
    an end, ``struct.error`` if they cannot be read."""
    if form != _MILLISECONDS:
        return _seconds_at(pid, argument, form)
    milliseconds = argument & 0xFFFFFFFF  # a C ``int``
    if milliseconds >= 1 << 31:
        raise ValueError("no end")
    return milliseconds / 1000.0


def _seconds_at(pid: int, address: int, parts: int) -> float:
    """The time at an address of a process, in seconds. Raises ValueError at 0, ``struct.error`` if
    it cannot be read."""
    if not address:
        raise ValueError("no end")
    seconds, rest = _TIME.unpack(memory_at(pid, address, _TIME.size) or b"")
    return float(seconds + rest / parts)


def _absolute(call: int, arguments: list[int]) -> tuple[int, int]:
    """The clock and the address of the time up to which a thread waits. Raises ValueError if it is
    in no such wait, IndexError if arguments are missing."""
    first, flags, third, fourth = arguments[:4]
    machine = os.uname().machine
    if call == _CLOCK_NANOSLEEP.get(machine) and first in _CLOCKS and flags & _TIMER_ABSTIME:
        return first, third
    if call == _FUTEX.get(machine) and flags & _FUTEX_CMD_MASK == _FUTEX_WAIT_BITSET:
        return (
            time.CLOCK_REALTIME if flags & _FUTEX_CLOCK_REALTIME else time.CLOCK_MONOTONIC
        ), fourth
    raise ValueError("no wait up to a known time")

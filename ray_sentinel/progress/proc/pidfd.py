"""Process descriptors: notification of the exit of a process that is not our child.

``pidfd_open`` is in Linux since 5.3; a pidfd becomes readable when the process ends. The exit
status of somebody else's child: the ``PIDFD_GET_INFO`` ioctl with ``PIDFD_INFO_EXIT`` since 6.15,
once the parent has reaped it (``include/uapi/linux/pidfd.h``), and the last field but none of
``/proc/<pid>/stat`` while it is a zombie that we may read.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

from ray_sentinel.progress.proc.proc_stat import read_stat

# struct pidfd_info, its first published version: mask, cgroupid, then pid, tgid, ppid, eight user
# and group ids, exit_code.
_INFO = struct.Struct("@QQ12I")
_READ_WRITE = 3
"""The value of ``_IOC_READ | _IOC_WRITE`` (``asm-generic/ioctl.h``)."""
_GET_INFO = _READ_WRITE << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_INFO_EXIT = 1 << 3
"""The value of ``PIDFD_INFO_EXIT`` (``linux/pidfd.h``)."""


def open_pidfd(pid: int, start: int, proc: Path = Path("/proc")) -> int | None:
    """A descriptor of exactly this process.

    None if it has ended already. Raises OSError if the kernel has no such descriptors.
    """
    if not hasattr(os, "pidfd_open"):
        raise OSError(errno.ENOSYS, "this Python has no pidfd_open")
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    # Opened by number: only now is it sure that the number still means the same process.
    if _state(pid, start, proc) is None:
        os.close(handle)
        return None
    return handle


def is_zombie(pid: int, start: int, proc: Path = Path("/proc")) -> bool:
    """Whether the process ended and waits for its parent to reap it."""
    return _state(pid, start, proc) in ("Z", "X")


def has_ended(pid: int, start: int, proc: Path = Path("/proc")) -> bool:
    """Whether the process is gone, or only waits for its parent to reap it."""
    return _state(pid, start, proc) in (None, "Z", "X")


def _state(pid: int, start: int, proc: Path) -> str | None:
    stat = read_stat(pid, proc=proc)
    return stat.state if stat is not None and stat.start == start else None


def exit_status(handle: int) -> int | None:
    """The wait status of a process that ended and was reaped; None if it is not known (yet)."""
    buffer = bytearray(_INFO.size)
    struct.pack_into("@Q", buffer, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(handle, _GET_INFO, buffer)
    except OSError:
        # ENOTTY before 6.13, ESRCH for a reaped process before 6.15.
        return None
    fields = _INFO.unpack(buffer)
    return int(fields[-1]) if fields[0] & _INFO_EXIT else None


def zombie_status(pid: int, start: int, proc: Path = Path("/proc")) -> int | None:
    """The wait status of a process that ended and was not reaped; None if unknown."""
    try:
        owner = os.stat(proc / str(pid) / "stat").st_uid
    except OSError:
        return None
    stat = read_stat(pid, proc=proc)
    if stat is None or stat.start != start or stat.state not in ("Z", "X"):
        return None
    # The kernel writes 0, the status of success, where we may not know.
    return stat.wait_status if os.geteuid() in (0, owner) else None


def describe(status: int | None) -> tuple[int | None, int | None]:
    """Exit code and signal of a wait status; one of them is None, or both if the status is
    unknown."""
    if status is None:
        return None, None
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None

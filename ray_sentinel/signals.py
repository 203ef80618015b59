"""The one way we signal processes: never a later process that has got the number of an ended one.

A process is a number and its start time (clock ticks since boot, field 22 of ``/proc/<pid>/stat``).
It is opened as a pidfd, the start time is compared after that, and the signal goes through the
pidfd, which means that process for ever (``man 2 pidfd_send_signal``, Linux 5.3). Where there are
no pidfds (old kernels, gVisor, some seccomp filters) the start time is compared right before
``kill``: a number is then mistaken only if it is given to another process within microseconds.

A group has no pidfd. It is signalled by number only while its leader is a child of ours that nobody
has reaped: until then the kernel gives the number to nobody. Otherwise its members are signalled,
each as above.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

if TYPE_CHECKING:  # 6 ms, and not needed by every process that signals
    import subprocess

_NO_PIDFDS = -1
_starts: WeakKeyDictionary[subprocess.Popen[bytes], int] = WeakKeyDictionary()


class _Stat(NamedTuple):
    state: str
    group: int
    session: int
    start: int


def send(pid: int, start: int, number: int) -> bool:
    """Signal the process that started at ``start``; False if it has ended.

    Raises PermissionError if it is not ours to signal.
    """
    handle = _open(pid)
    if handle is None:
        return False
    try:
        return send_through(handle, pid, start, number)
    finally:
        if handle != _NO_PIDFDS:
            os.close(handle)


def send_through(handle: int, pid: int, start: int, number: int) -> bool:
    """``send`` through a pidfd of the process; ``handle`` is -1 where the kernel has none."""
    # The pidfd was opened by number: the start time tells whose it is.
    if start_of(pid) != start:
        return False
    try:
        if handle >= 0:
            try:
                signal.pidfd_send_signal(handle, number)
                return True
            except PermissionError:
                # Filters that do not know the call answer the same; kill() tells the two apart.
                if start_of(pid) != start:
                    return False
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def note_child(child: subprocess.Popen[bytes]) -> None:
    """Remember when a child started, right after it has: if anybody reaps it behind Popen's back,
    its number can still be distinguished from a later process's."""
    start = start_of(child.pid)
    if start is not None:
        _starts[child] = start


def send_child(child: subprocess.Popen[bytes], number: int) -> bool:
    """Signal a child of ours alone; False if it has ended."""
    if child.returncode is not None:
        return False
    # Nobody has reaped it: the number is its own.
    start = _starts.get(child, start_of(child.pid))
    return start is not None and send(child.pid, start, number)


def send_group(child: subprocess.Popen[bytes], number: int) -> None:
    """Signal a child that leads a session, and all of its group."""
    if child.returncode is None and _is_unreaped(child):
        send_pinned_group(child.pid, number)
    elif start_of(child.pid) is None:
        # The number of a group that has members is given to nobody.
        for pid, start in session_members(child.pid):
            with contextlib.suppress(PermissionError):
                send(pid, start, number)


def send_pinned_group(leader: int, number: int) -> None:
    """Signal a group by number. Its leader must be a child of this process that was not reaped."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def end_own_group() -> None:
    """SIGKILL this process and all of its group."""
    os.killpg(0, signal.SIGKILL)


def _is_unreaped(child: subprocess.Popen[bytes]) -> bool:
    """Whether the number still is the child's, alive or ended."""
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    start = start_of(child.pid)
    return _starts.get(child, start) == start


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended. It is not reaped: its number stays its own."""
    if child.returncode is not None:
        return True
    try:
        if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
    except ChildProcessError:
        return True  # somebody else has reaped it
    return not _is_unreaped(child)


def session_members(leader: int) -> list[tuple[int, int]]:
    """Pid and start of what lives in the session, or in the group, of that number."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        stat = _stat(int(name))
        if stat is not None and leader in (stat.group, stat.session) and stat.state not in "ZX":
            found.append((int(name), stat.start))
    return found


def start_of(pid: int) -> int | None:
    """When the process of that number started; None if there is none."""
    stat = _stat(pid)
    return None if stat is None else stat.start


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
        return _Stat(fields[0].decode(), int(fields[2]), int(fields[3]), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None


def _open(pid: int) -> int | None:
    """A pidfd; -1 if the system has none, None if the process has ended."""
    if not (hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")):
        return _NO_PIDFDS
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except OSError:
        return _NO_PIDFDS

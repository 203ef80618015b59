"""Stacks of a process whose interpreter lock is held, where no debugger may look.

``faulthandler`` has a thread in C that needs no lock. The companion keeps putting its alarm off;
when the companion does not get to run, the alarm goes off and leaves the stacks of all threads in a
file. It is armed only when a reader asks, or where the kernel forbids ptrace for good, because the
alarm is one per process (the training's own ``dump_traceback_later`` would be replaced), and
because a process that was stopped and continued meets a late alarm, which then reads stacks that
move.

A child forked while the alarm is set would wait for ever at its own exit for a thread that it does
not have (tried), so the alarm is taken off around every fork.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from pathlib import Path

from ray_sentinel.kernel_files import yama_scope

DELAY = 5.0
"""Seconds that the interpreter must be held before the alarm goes off."""
REARM = 2.0
"""Seconds between two times that the alarm is put off; one costs about 25 µs."""


class Watchdog:
    """The alarm of one process."""

    def __init__(self, folder: int, name: str, delay: float = DELAY) -> None:
        """``folder`` is a descriptor; the file is made at once. Raises OSError."""
        self._delay = delay
        # Held from before a fork until after it, so that nobody sets the alarm in between.
        self._lock = threading.Lock()
        # Not allocated ahead: it is written to by write(), which can fail but not kill.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(name, flags, 0o600, dir_fd=folder)
        self.arm()

    def arm(self) -> None:
        """Put the alarm off. What an earlier alarm left is cut away: it is over."""
        if self._lock.acquire(blocking=False):
            try:
                self._arm()
            finally:
                self._lock.release()

    def _arm(self) -> None:
        if self._handle < 0:
            return
        # Waits for an alarm that is just being written: what came after the cut would stay.
        faulthandler.cancel_dump_traceback_later()
        if os.fstat(self._handle).st_size:
            os.ftruncate(self._handle, 0)
        faulthandler.dump_traceback_later(self._delay, file=self._handle)

    def pause(self) -> None:
        """Before a fork."""
        self._lock.acquire()
        faulthandler.cancel_dump_traceback_later()

    def resume(self) -> None:
        """After a fork, in the parent."""
        self._arm()
        self._lock.release()

    def close(self) -> None:
        """Take the alarm off for good."""
        with self._lock:
            if self._handle >= 0:
                faulthandler.cancel_dump_traceback_later()
                os.close(self._handle)
                self._handle = -1


def ptrace_is_forbidden(proc: Path = Path("/proc")) -> bool:
    """Whether Yama leaves tracing to administrators (2) or to nobody (3)."""
    return (yama_scope(proc) or 0) >= 2

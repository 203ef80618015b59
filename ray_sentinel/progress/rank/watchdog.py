"""Stacks of a process that holds its interpreter lock, if no debugger may attach.

``faulthandler`` has a timer thread in C that needs no lock. The companion keeps restarting the
timer; when the companion does not get to run, the timer expires and writes the stacks of all
threads to a file. It is started only when a reader asks, or where the kernel forbids ptrace for
good, because there is one timer per process (the training's own ``dump_traceback_later`` would be
replaced), and because in a process that was stopped and continued it expires late, and reads stacks
that move.

A child forked while the timer runs would wait for ever at its own exit for a thread that it does
not have (tried), so the timer is cancelled around every fork.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from pathlib import Path

from ray_sentinel.kernel_files import yama_scope

DELAY = 5.0
"""Seconds that the interpreter must be held before the timer expires."""
REARM = 2.0
"""Seconds between two restarts of the timer; one costs about 25 µs."""


class Watchdog:
    """The timer of one process."""

    def __init__(self, folder: int, name: str, delay: float = DELAY) -> None:
        """``folder`` is a descriptor; the file is created at once. Raises OSError."""
        self._delay = delay
        # Held from before a fork until after it, so that nobody starts the timer in between.
        self._lock = threading.Lock()
        # Not allocated ahead: it is written to by write(), which can fail but not kill.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(name, flags, 0o600, dir_fd=folder)
        self.arm()

    def arm(self) -> None:
        """Restart the timer and truncate what an earlier expiry wrote."""
        if self._lock.acquire(blocking=False):
            try:
                self._arm()
            finally:
                self._lock.release()

    def _arm(self) -> None:
        if self._handle < 0:
            return
        # Waits while an expiry is being written: what it wrote after the truncation would stay.
        faulthandler.cancel_dump_traceback_later()
        if os.fstat(self._handle).st_size:
            os.ftruncate(self._handle, 0)
        faulthandler.dump_traceback_later(self._delay, file=self._handle)

    def pause(self) -> None:
        """Cancel the timer before a fork."""
        self._lock.acquire()
        faulthandler.cancel_dump_traceback_later()

    def resume(self) -> None:
        """Start it again after a fork, in the parent."""
        try:
            self._arm()
        except (OSError, RuntimeError):
            # No thread can be started now: the companion tries again.
            pass
        finally:
            self._lock.release()

    def close(self) -> None:
        """Cancel the timer for good."""
        with self._lock:
            if self._handle >= 0:
                faulthandler.cancel_dump_traceback_later()
                os.close(self._handle)
                self._handle = -1


def ptrace_is_forbidden(proc: Path = Path("/proc")) -> bool:
    """Whether Yama leaves tracing to administrators (2) or to nobody (3)."""
    return (yama_scope(proc) or 0) >= 2

"""The exits of ranks, in the order in which they happened.

After one rank is killed its peers fail within a second; who was first is what matters. A thread
waits on all ranks' pidfds at once and stamps each exit as the kernel reports it: the order is that
of the kernel's ready list, even if this process was slow to wake. Where there are no pidfds, exits
are noticed only when the processes are polled, and the order within a poll is by pid.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from ray_sentinel.progress.proc import pidfd
from ray_sentinel.progress.proc.proc_stat import Key

log = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds to wait for a parent to reap a rank: only then may its exit status be known."""

_FOR_GOOD = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL})
"""Errors of an old kernel or of a filter of system calls; any other error may be gone at the next
poll."""


class Ended(msgspec.Struct, kw_only=True):
    """One process that ended."""

    key: Key
    at: float
    """Unix seconds, to the millisecond."""
    status: int | None = None
    """The wait status, as from ``wait()``; None if unknown."""


class ExitWatch:
    """Waits for the exits of any processes, in a thread of its own."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        *,
        now: Callable[[], float] = time.time,
        on_exit: Callable[[], None] | None = None,
    ) -> None:
        """``on_exit`` is called in the watching thread after each exit, and must be quick."""
        self._proc, self._now, self._on_exit = proc, now, on_exit
        self._lock = threading.Lock()
        self._handles: dict[int, Key] = {}
        self._watched: dict[Key, int | None] = {}
        self._ended: list[tuple[Ended, int | None]] = []
        self._epoll: select.epoll | None = None
        self._wake = -1
        self._thread: threading.Thread | None = None
        # The pids of a captured tree are not those of this machine.
        self._without = proc != Path("/proc")
        self._put_off: set[Key] = set()
        """Processes that are watched without a pidfd until there is room for one."""
        self._complained = False

    def watch(self, key: Key) -> None:
        """Report this process's exit. One that has already ended is reported at once."""
        if key in self._watched and key not in self._put_off:
            return
        handle: int | None = None
        if not self._without:
            try:
                handle = pidfd.open_pidfd(*key, self._proc)
            except OSError as error:
                self._refused(key, error)
            else:
                self._put_off.discard(key)
                if handle is None:
                    self._watched[key] = None
                    self._note(key, None)
                    return
        with self._lock:
            if handle is not None:
                try:
                    self._register(handle)
                except OSError as error:
                    os.close(handle)
                    handle = None
                    self._refused(key, error)
            self._watched[key] = handle
            if handle is not None:
                self._handles[handle] = key

    def _refused(self, key: Key, error: OSError) -> None:
        self._without = error.errno in _FOR_GOOD
        if not self._without:
            self._put_off.add(key)
        if self._without or not self._complained:
            self._complained = True
            log.warning("exits are seen once a second only: no pidfds: %s", error.strerror)

    def _register(self, handle: int) -> None:
        if self._epoll is None:
            self._epoll = self._begin()
        self._epoll.register(handle, select.EPOLLIN)

    def _begin(self) -> select.epoll:
        """Start the thread that waits. Raises OSError, and leaves nothing behind, if its resources
        cannot be allocated."""
        with contextlib.ExitStack() as undo:
            epoll = select.epoll()
            undo.callback(epoll.close)
            self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            undo.callback(os.close, self._wake)
            epoll.register(self._wake, select.EPOLLIN)
            thread = threading.Thread(
                target=self._run, args=(epoll,), name="ray-sentinel-exits", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, str(error)) from error
            undo.pop_all()
        self._thread = thread
        return epoll

    def _run(self, epoll: select.epoll) -> None:
        while True:
            for handle, _ in epoll.poll():
                if handle == self._wake:
                    return
                epoll.unregister(handle)
                with self._lock:
                    key = self._handles.pop(handle, None)
                if key is None:
                    os.close(handle)
                    continue
                self._note(key, handle)
            if self._on_exit is not None:
                self._on_exit()

    def _note(self, key: Key, handle: int | None) -> None:
        at = round(self._now(), 3)
        status = None if handle is None else pidfd.exit_status(handle)
        if status is None:
            status = pidfd.zombie_status(*key, self._proc)
        with self._lock:
            self._ended.append((Ended(key=key, at=at, status=status), handle))

    def missing(self, gone: Iterable[Key]) -> None:
        """Processes that are no longer in ``/proc``: those without a pidfd have exited."""
        for key in gone:
            if key in self._watched and self._watched[key] is None and not self.has_ended(key):
                self._note(key, None)

    def has_ended(self, key: Key) -> bool:
        """Whether the exit was seen and not yet drained."""
        with self._lock:
            return any(ended.key == key for ended, _ in self._ended)

    def drain(self) -> tuple[Ended, ...]:
        """The exits since the last call, in order.

        A zombie whose status we may not read is held back for a second, and all later ones with it:
        the status may become known once its parent has reaped it.
        """
        ready: list[Ended] = []
        with self._lock:
            while self._ended:
                ended, handle = self._ended[0]
                if ended.status is None and handle is not None:
                    waits_for_parent = pidfd.is_zombie(*ended.key, self._proc)
                    ended.status = pidfd.exit_status(handle)
                    young = 0 <= self._now() - ended.at < PATIENCE
                    if ended.status is None and waits_for_parent and young:
                        break
                if handle is not None:
                    os.close(handle)
                self._ended.pop(0)
                self._watched.pop(ended.key, None)
                self._put_off.discard(ended.key)
                ready.append(ended)
        return tuple(ready)

    def close(self) -> None:
        """Stop watching."""
        if self._thread is not None and self._thread.is_alive():
            os.eventfd_write(self._wake, 1)
            self._thread.join(timeout=5)
        with self._lock:
            for handle in (*self._handles, *(handle for _, handle in self._ended)):
                if handle is not None:
                    os.close(handle)
            self._handles.clear()
            self._ended.clear()
            self._watched.clear()
            if self._epoll is not None:
                self._epoll.close()
                os.close(self._wake)
                self._epoll = None

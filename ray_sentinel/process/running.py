"""Programs that are run to their end, or to their deadline."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ray_sentinel import signals
from ray_sentinel.process.spawning import end, ends, finish, spawn
from ray_sentinel.signals import has_ended

POLL = 0.1
"""Seconds between two looks whether a program has ended while its pipes are still open."""
SOON = 0.01
"""Seconds between two looks at the output of a program that is to end as soon as a certain text has
been written."""
INTERRUPT_EVERY = 0.5
"""Seconds between two SIGINT: a program that is slow to notice one must not get many."""
_TAIL = 4096
"""Bytes of the end of an output in which a text is looked for once more than is kept was written.
"""


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended. ``stdout`` and ``stderr`` hold at most the bytes that were allowed."""

    argv: tuple[str, ...]
    returncode: int | None
    """Exit status, negative for a signal as in ``subprocess``; None if the program could not be
    killed."""
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    timed_out: bool = False
    truncated: bool = False
    pid: int = 0

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, in time, with status 0."""
        return self.returncode == 0 and not self.timed_out

    def explain(self) -> str:
        """One line that says what went wrong."""
        name = os.path.basename(self.argv[0])
        if self.timed_out and self.returncode is None:
            return f"{name} (pid {self.pid}) cannot be killed: it hangs in the kernel"
        if self.timed_out:
            return f"{name} was ended after {self.seconds:.1f} s"
        last = self.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"{name} ended with status {self.returncode}" + (
            f": {last[0][:300]}" if last else ""
        )


class Interrupts(msgspec.Struct, frozen=True, kw_only=True):
    """How a program that must not be killed at just any moment is brought to its end at its
    deadline: SIGINT breaks off the command that it carries out, so that it goes on to the next one.
    """

    after: bytes
    """It gets no SIGINT before this appears in its standard output."""
    until: bytes
    """It gets none once this appears, because it is ending then."""
    seconds: float
    """Until ``after`` appears, and again until it has ended; a program that takes longer is killed.
    """


def run(
    argv: Sequence[str],
    *,
    deadline: float,
    max_output: int = 16 << 20,
    input: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    on_start: Callable[[int], None] | None = None,
    interrupts: Interrupts | None = None,
    crowded: float = 0.0,
) -> Completed:
    """Run a program to its end or to its deadline (seconds), whichever comes first.

    ``on_start`` is called with its pid, which is also its group's. Output past ``max_output`` bytes
    per stream is dropped and the program goes on. At the deadline its whole group is killed, or
    brought to its end by ``interrupts``. Time in which it waits for a CPU does not count against
    the deadline, up to ``crowded`` seconds: it is late and does not hang. Raises MissingPartError
    if the program is not there, OSError if it cannot be run; in both cases no process of it
    remains.
    """
    started = time.monotonic()
    child = spawn(
        argv,
        stdin=subprocess.PIPE if input else subprocess.DEVNULL,
        env=env,
        cwd=cwd,
        # A debugger that crashes would leave tens of megabytes in the agent's folder each time.
        core_dumps=False,
    )
    with contextlib.ExitStack() as undo:
        # Without a descriptor for the selector nobody could wait for the child.
        undo.callback(_abandon, child)
        if on_start is not None:
            on_start(child.pid)
        drain = _Drain(child, max_output, input)
        undo.pop_all()
    finished = _wait(child, drain, started + deadline, crowded)
    if finished or (interrupts is not None and _interrupted(child, drain, interrupts)):
        finish(child)
    else:
        end(child)
        drain.until(time.monotonic() + 0.2)
    drain.close()
    return Completed(
        argv=tuple(argv),
        returncode=child.poll(),
        stdout=bytes(drain.out),
        stderr=bytes(drain.err),
        seconds=time.monotonic() - started,
        timed_out=not finished,
        truncated=drain.truncated,
        pid=child.pid,
    )


def _interrupted(child: subprocess.Popen[bytes], drain: _Drain, how: Interrupts) -> bool:
    """Bring a program to its end; whether it has ended."""
    moment = time.monotonic() + how.seconds
    while not drain.has_read(how.after):
        if _wait(child, drain, min(moment, time.monotonic() + SOON)):
            return True
        if time.monotonic() >= moment:
            return False
    moment = time.monotonic() + how.seconds
    while not drain.has_read(how.until) and time.monotonic() < moment:
        signals.send_group(child, signal.SIGINT)
        if _wait(child, drain, min(moment, time.monotonic() + INTERRUPT_EVERY)):
            return True
    return _wait(child, drain, moment)


def _abandon(child: subprocess.Popen[bytes]) -> None:
    """End a child whose output cannot be read."""
    end(child)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def _wait(
    child: subprocess.Popen[bytes], drain: _Drain, moment: float, crowded: float = 0.0
) -> bool:
    """Drain until the program has ended (True) or until the monotonic ``moment`` (False), put off
    by what the program has waited for a CPU, at most by ``crowded`` seconds."""
    queue = CpuQueue(child.pid) if crowded > 0 else None
    while True:
        delayed = min(crowded, queue.seconds()) if queue is not None else 0.0
        closed = drain.until(min(moment + delayed, time.monotonic() + POLL))
        if has_ended(child):
            # Processes that it left behind may hold the pipes open for ever: read only what is in
            # them now.
            return closed or drain.until(time.monotonic() + POLL) or True
        left = moment + delayed - time.monotonic()
        if left <= 0 and (queue is None or min(crowded, queue.seconds()) <= delayed):
            return False
        if closed and ends(child, min(left, POLL) if queue is not None else left):
            return True


class CpuQueue:
    """How long a process' main thread has waited for a CPU (``/proc/PID/schedstat``, kernel
    documentation scheduler/sched-stats.rst), since it was started.

    The kernel adds a wait to its account only when it ends. So a current wait shows in two looks:
    runnable in both, and not run in between.
    """

    def __init__(self, pid: int) -> None:
        self._folder = f"/proc/{pid}"
        self._known = (0, 0)
        self._since = time.monotonic()

    def seconds(self) -> float:
        """The waits so far in seconds; 0 if the kernel does not report them."""
        try:
            with open(f"{self._folder}/schedstat", "rb") as file:
                ran, waited, _ = map(int, file.read().split())
            with open(f"{self._folder}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except (OSError, ValueError, IndexError):
            return 0.0
        now = time.monotonic()
        if (ran, waited) != self._known or state != b"R":
            self._known, self._since = (ran, waited), now
        return waited / 1e9 + now - self._since


class _Drain:
    """Feeds stdin and reads both outputs of a child without ever waiting for only one of them."""

    def __init__(self, child: subprocess.Popen[bytes], limit: int, data: bytes) -> None:
        self.out, self.err = bytearray(), bytearray()
        self.truncated = False
        self._tail = b""
        self._limit = limit
        self._data = memoryview(data)
        self._selector = selectors.DefaultSelector()
        for pipe, kind in (
            (child.stdout, selectors.EVENT_READ),
            (child.stderr, selectors.EVENT_READ),
            (child.stdin, selectors.EVENT_WRITE),
        ):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, kind, self.out if pipe is child.stdout else self.err)

    def until(self, moment: float) -> bool:
        """Drain until all pipes are closed (True) or until the monotonic ``moment`` (False)."""
        while self._selector.get_map():
            left = moment - time.monotonic()
            if left <= 0:
                return False
            for key, event in self._selector.select(left):
                if event & selectors.EVENT_WRITE:
                    self._write(key.fileobj)
                else:
                    self._read(key.fileobj, key.data)
        return True

    def has_read(self, text: bytes) -> bool:
        """Whether the text is in the standard output so far."""
        self.until(time.monotonic() + SOON)
        return text in self.out or text in self._tail

    def _read(self, pipe: Any, into: bytearray) -> None:
        try:
            chunk = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if not chunk:
            self._drop(pipe)
            return
        room = self._limit - len(into)
        self.truncated |= len(chunk) > room
        into += chunk[: max(room, 0)]
        if into is self.out:
            self._tail = (self._tail + chunk)[-_TAIL:]

    def _write(self, pipe: Any) -> None:
        try:
            self._data = self._data[os.write(pipe.fileno(), self._data[: 1 << 16]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._data = self._data[:0]
        if not self._data:
            self._drop(pipe)

    def _drop(self, pipe: Any) -> None:
        self._selector.unregister(pipe)
        pipe.close()

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._drop(key.fileobj)
        self._selector.close()

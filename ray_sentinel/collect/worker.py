"""One collector's process in the runner: start, communicate, kill; never waits."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from ray_sentinel import process
from ray_sentinel import regex as re
from ray_sentinel.collect import protocol
from ray_sentinel.collect.child_registry import (
    FAMILY_VARIABLE,
    ChildRegistry,
    SpawnedGroup,
    group_of,
    kill,
    members,
)
from ray_sentinel.progress.discovery.environment import IDENTITY_VARIABLES, ROLE_VARIABLE

# The runner's ends of a collector's pipes: non-blocking, watched by one selector.

LOG_LIMIT = 128 << 10
"""Most bytes of log that are read of one run; beyond that the process must wait for its next run,
or is killed at its deadline."""
_LINE_LIMIT = 4 << 10
_TAIL = 16 << 10
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+) in (\S+)', re.MULTILINE)


class PipeEnd:
    """One end of a pipe, non-blocking, with a handler for when it is ready."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        pipe: IO[bytes],
        event: int,
        handler: Callable[[], None],
    ) -> None:
        self._selector, self._pipe, self._event, self._handler = selector, pipe, event, handler
        self._watched = False
        os.set_blocking(pipe.fileno(), False)

    @property
    def closed(self) -> bool:
        """Whether it was closed on this side."""
        return self._pipe.closed

    def watch(self, on: bool = True) -> None:
        """Set whether the handler is called when the pipe is ready."""
        if on is not self._watched and not self.closed:
            self._watched = on
            if on:
                self._selector.register(self._pipe, self._event, self._handler)
            else:
                self._selector.unregister(self._pipe)

    def read(self, size: int) -> bytes | None:
        """Read the available bytes; empty at the end, None if there are none now or it is
        closed."""
        if self.closed:
            return None
        try:
            return os.read(self._pipe.fileno(), size)
        except BlockingIOError:
            return None

    def write(self, data: bytes | bytearray) -> int | None:
        """Write. Returns how many bytes were accepted, None if the other side has closed."""
        try:
            return os.write(self._pipe.fileno(), data)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return None

    def close(self) -> None:
        """Close the pipe and stop watching it."""
        if not self.closed:
            self.watch(False)
            self._pipe.close()


class StderrLog:
    """A process's stderr, split into bounded lines, and the place where the process hung if that is
    in it."""

    def __init__(
        self, selector: selectors.BaseSelector, pipe: IO[bytes], on_line: Callable[[str], None]
    ) -> None:
        self._end = PipeEnd(selector, pipe, selectors.EVENT_READ, self.read)
        self._on_line = on_line
        self._room = LOG_LIMIT
        self._line = self._tail = b""
        self._end.watch()

    def read(self) -> None:
        """Read the available bytes."""
        data = self._end.read(1 << 16)
        if data is None:
            return
        self._tail = (self._tail + data)[-_TAIL:]
        *lines, self._line = (self._line + data).split(b"\n")
        if len(self._line) > _LINE_LIMIT or not data:
            lines.append(self._line)
            self._line = b""
        for line in lines:
            if line:
                self._on_line(line[:_LINE_LIMIT].decode("utf-8", "backslashreplace"))
        self._room -= len(data)
        if not data:
            self._end.close()
        elif self._room <= 0:
            self._on_line(f"(logged {LOG_LIMIT} bytes in one run: the rest waits)")
            self._end.watch(False)

    def refill(self) -> None:
        """Reset the limit of logged lines, because a new run begins."""
        self._room = LOG_LIMIT
        self._end.watch()

    def where(self) -> str:
        """Where the process was when its own timer ended it: " in FUNCTION (FILE:LINE)", or empty.
        Format: CPython's ``faulthandler.dump_traceback_later``, innermost frame first."""
        text = self._tail.decode("utf-8", "replace")
        start = text.rfind("Timeout (")
        if start < 0:
            return ""
        # Threads come youngest first; the one that collects is the oldest.
        thread = text[start:].rsplit("(most recent call first):", 1)[-1]
        frame = _FRAME.search(thread)
        return f" in {frame[3]} ({os.path.basename(frame[1])}:{frame[2]})" if frame else ""

    def close(self) -> None:
        """Log the last lines and close."""
        self.read()
        self._end.close()


def child_environment(
    environ: Mapping[str, str], path: Sequence[str], family: str
) -> dict[str, str]:
    """The environment of a collector's process: it can import what the agent can, is not taken for
    a rank, and what it starts is identified by ``family``."""
    found = {name: value for name, value in environ.items() if name not in IDENTITY_VARIABLES}
    found[ROLE_VARIABLE] = "collector"
    found[FAMILY_VARIABLE] = family
    found["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in path)
    found["OMP_NUM_THREADS"] = "1"
    return found


class CollectorProcess:
    """A collector's process. The ``selector`` calls its handlers: each key's data is a function."""

    def __init__(
        self,
        setup: protocol.Setup,
        *,
        on_message: Callable[[protocol.FromChild], None],
        on_closed: Callable[[str], None],
        log: Callable[[str], None],
        selector: selectors.BaseSelector,
        children: ChildRegistry,
        environ: Mapping[str, str],
    ) -> None:
        """Start the process. Raises OSError or SentinelError if that is not possible.

        ``on_closed`` is called when it has closed its stdout, so that it has ended or soon will;
        the text says what was wrong with a message that nobody could read, or is empty.
        """
        self._name, self._children = setup.source.name, children
        self._on_message, self._on_closed = on_message, on_closed
        self._frames: protocol.Frames[protocol.FromChild] = protocol.Frames(protocol.FromChild)
        self._outbox = bytearray()
        family = uuid.uuid4().hex
        self._child = process.spawn(
            [sys.executable, "-m", "ray_sentinel.collect.child", self._name],
            stdin=subprocess.PIPE,
            env=child_environment(environ, sys.path, family),
            cwd="/",
            death_signal=False,
        )
        self._leader = group_of(self._child.pid, family)
        self._groups: tuple[SpawnedGroup, ...] = ()
        children.write(self._name, self._leader)
        self._log = StderrLog(selector, _pipe(self._child.stderr), log)
        self._stdin = PipeEnd(
            selector, _pipe(self._child.stdin), selectors.EVENT_WRITE, self._write
        )
        self._stdout = PipeEnd(
            selector, _pipe(self._child.stdout), selectors.EVENT_READ, self._read
        )
        self._stdout.watch()
        self.send(setup)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    def send(self, message: protocol.ToChild) -> None:
        """Send a message, now or when the pipe has room."""
        self._outbox += protocol.encode(message)
        self._log.refill()
        self._write()

    def kill(self) -> None:
        """Send SIGKILL to the process and all that it started; ``gone`` says when they have
        ended."""
        # What it started is found by it: it goes last.
        for group in (*self._groups, self._leader):
            kill(group)
        process.kill(self._child)
        self._log.close()
        self._stdin.close()
        self._stdout.close()

    def gone(self) -> bool:
        """Whether the process and all that it started have ended."""
        if process.reap(self._child) is None or self.remaining():
            return False
        self._children.remove(self._leader)
        return True

    def remaining(self) -> int:
        """How many of its processes still exist."""
        found = {key for group in (self._leader, *self._groups) for key in members(group)}
        return len(found)

    def epitaph(self) -> str:
        """How it ended, for people."""
        status = self._child.returncode
        if status is None:
            return "cannot be killed: it hangs in the kernel"
        if status < 0:
            return f"was killed by signal {-status}"
        return f"ended with status {status}"

    def where(self) -> str:
        """Where it hung, if its log shows that: " in FUNCTION (FILE:LINE)", or empty."""
        return self._log.where()

    def _read(self) -> None:
        data = self._stdout.read(1 << 20)
        if data is None:
            return
        why = ""
        try:
            for message in self._frames.feed(data):
                if isinstance(message, protocol.ProgramStarted):
                    self._note_group(message.pid)
                else:
                    self._on_message(message)
        except protocol.FrameError as error:
            why = str(error)
        if why or not data:
            # Its last output is in the log by now: its stderr closes after, or with, its stdout.
            self._log.read()
            self._stdout.close()
            self._on_closed(why)

    def _note_group(self, pid: int) -> None:
        still = tuple(group for group in self._groups if members(group))
        self._groups = (*still, group_of(pid))
        self._children.write(self._name, self._leader, self._groups)

    def _write(self) -> None:
        if self._stdin.closed:
            return
        while self._outbox:
            taken = self._stdin.write(self._outbox)
            if taken is None:
                self._outbox.clear()
            elif taken == 0:
                break
            else:
                del self._outbox[:taken]
        self._stdin.watch(bool(self._outbox))


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # each was asked for
    return pipe

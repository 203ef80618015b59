"""One collector's process in the runner: start, communicate, kill; never waits."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import IO

import msgspec

from ray_sentinel import process
from ray_sentinel.collect.child_registry import (
    FAMILY_VARIABLE,
    ChildRegistry,
    SpawnedGroup,
    group_of,
    kill,
    members,
)
from ray_sentinel.collect.pipes import PipeEnd, StderrLog
from ray_sentinel.collect.protocol import (
    FrameError,
    Frames,
    FromChild,
    ProgramStarted,
    Setup,
    ToChild,
    encode,
)
from ray_sentinel.progress.discovery.environment import IDENTITY_VARIABLES, ROLE_VARIABLE


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


class Handlers(msgspec.Struct, frozen=True, kw_only=True):
    """Callbacks for what a process sends."""

    message: Callable[[FromChild], None]
    log: Callable[[str], None]
    closed: Callable[[str], None]
    """Called when the process has closed its stdout, so that it has ended or soon will; the text
    says what was wrong with a message that nobody could read, or is empty."""


class CollectorProcess:
    """A collector's process. The ``selector`` calls its handlers: each key's data is a function."""

    def __init__(
        self,
        setup: Setup,
        handlers: Handlers,
        *,
        selector: selectors.BaseSelector,
        children: ChildRegistry,
        environ: Mapping[str, str],
    ) -> None:
        """Start the process. Raises OSError or SentinelError if that is not possible."""
        self._name, self._handlers, self._children = setup.source.name, handlers, children
        self._frames: Frames[FromChild] = Frames(FromChild)
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
        self._log = StderrLog(selector, _pipe(self._child.stderr), handlers.log)
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

    def send(self, message: ToChild) -> None:
        """Send a message, now or when the pipe has room."""
        self._outbox += encode(message)
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
                if isinstance(message, ProgramStarted):
                    self._note_group(message.pid)
                else:
                    self._handlers.message(message)
        except FrameError as error:
            why = str(error)
        if why or not data:
            # Its last output is in the log by now: its stderr closes after, or with, its stdout.
            self._log.read()
            self._stdout.close()
            self._handlers.closed(why)

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

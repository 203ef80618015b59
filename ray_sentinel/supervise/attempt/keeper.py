"""The process between supervisor and command; it survives when the supervisor is killed.

``python -m ray_sentinel.supervise.attempt.keeper FOLDER``, its ``Order`` on standard input. It is
the command's parent, so that the exit status is never lost; it writes the command's output to a
file of bounded size; and it is the subreaper of all that the command starts (``man 2
PR_SET_CHILD_SUBREAPER``), so that what is left behind is found, in whatever session it is.

SIGTERM: end the command, SIGKILL after the grace. SIGINT: the same, with SIGINT to the command. A
further one of them: SIGKILL now. Ray's own processes are left alone: a script may have started a
node.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from ray_sentinel import process, signals
from ray_sentinel.clock import SteadyClock
from ray_sentinel.errors import SentinelError
from ray_sentinel.progress.discovery.descendants import Descendant, descendants
from ray_sentinel.progress.rank.own_process import start_ticks
from ray_sentinel.supervise.json_records import decode, encode
from ray_sentinel.supervise.run_folder import OLDER, OUTPUT, STATE, State
from ray_sentinel.whole_file import write_whole

CHUNK = 1 << 18
"""Bytes read at once, more than a pipe holds by default."""
LEFT_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for processes that the command left behind."""
KILL_SECONDS = 10.0
"""Seconds after SIGKILL from which a remaining process counts as hanging in the kernel."""
DRAIN_SECONDS = 0.5
"""Seconds for reading the command's last output while others hold it open."""
_SUBREAPER = 36
"""The number of ``PR_SET_CHILD_SUBREAPER`` (``linux/prctl.h``)."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the keeper has to run."""

    argv: tuple[str, ...]
    environ: dict[str, str]
    cwd: str
    grace: float
    max_bytes: int
    """Most bytes of one output file; there are two."""


class Keeper:
    """Keeps one attempt."""

    def __init__(self, folder: Path, order: Order) -> None:
        self._folder, self._order = folder, order
        # How long the command ran decides whether it is started again: no set clock changes that.
        self._clock = SteadyClock()
        self._asked: list[int] = []
        self._kill_at: float | None = None
        self._state = State(keeper=os.getpid(), keeper_start=start_ticks())
        self._output = RotatingOutput(folder, order.max_bytes)
        self._pipe = -1
        self._wake, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> int:
        """Start the command, and stay until it and all that it left behind have ended."""
        ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)
        self._catch_signals()
        if not self._start():
            return 127
        status = self._watch()
        left = self._end_what_is_left()
        self._write(
            ended_at=self._clock.now(),
            code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            left=tuple(f"{one.pid} {one.command}" for one in left),
            stuck=tuple(one.pid for one in descendants(os.getpid())),
            lost_bytes=self._output.lost_bytes,
        )
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)

    def _catch_signals(self) -> None:
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda caught, frame: self._asked.append(caught))
        signal.signal(signal.SIGCHLD, lambda caught, frame: None)
        for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)

    def _start(self) -> bool:
        try:
            child = process.spawn(
                self._order.argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=self._order.environ,
                cwd=self._order.cwd,
            )
        except (OSError, ValueError, SentinelError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self._write(
                problem=f"the command cannot be started: {why}",
                ended_at=self._clock.now(),
                code=127,
            )
            return False
        assert child.stdout is not None
        self._child, self._pipe = child.pid, child.stdout.fileno()
        self._stdout = child.stdout
        os.set_blocking(self._pipe, False)
        self._write(
            child=child.pid, child_start=start_ticks(child.pid), started_at=self._clock.now()
        )
        return True

    def _write(self, **changes: object) -> None:
        self._state = msgspec.structs.replace(self._state, **changes)
        data = encode(self._state)
        try:
            write_whole(self._folder / STATE, data)
        except OSError:
            self._overwrite(data)

    def _overwrite(self, data: bytes) -> None:
        """Write into the block that the file already has, on a full disk: how the command ended
        must be recorded.

        A reader that comes in between finds no JSON, and looks again.
        """
        try:
            with open(self._folder / STATE, "r+b", buffering=0) as file:
                file.write(data)
                file.truncate()
        except OSError as error:
            sys.stderr.write(f"{self._folder}: {error.strerror}\n")

    def _watch(self) -> int:
        """Wait until the command has ended; returns its wait status."""
        while True:
            self._pump(1.0 if self._kill_at is None else 0.1)
            status = self._reap()
            if status is not None:
                self._drain()
                return status
            self._obey()

    def _obey(self) -> None:
        if self._asked and self._kill_at is None:
            self._kill_at = time.monotonic() + self._order.grace
            self._signal(self._asked[0])
        if len(self._asked) > 1 or (self._kill_at is not None and time.monotonic() > self._kill_at):
            for one in descendants(os.getpid()):
                one.signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        # Called only while nobody has reaped the command: its number is its own.
        signals.send_pinned_group(self._child, number)

    def _pump(self, seconds: float) -> None:
        """Copy the command's output for at most ``seconds``."""
        watched = [fd for fd in (self._pipe, self._wake) if fd >= 0]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._pipe in ready:
            self._read()

    def _read(self) -> bool:
        try:
            data = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._stdout.close()
            self._pipe = -1
            return False
        self._output.write(data)
        return True

    def _drain(self) -> None:
        """Copy what is in the pipe; processes that it left behind may hold it open for ever."""
        until = time.monotonic() + DRAIN_SECONDS
        while self._pipe >= 0 and time.monotonic() < until and self._read():
            pass

    def _reap(self) -> int | None:
        """Reap all that ended; the command's status once it has."""
        found: int | None = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            if pid == self._child:
                found = status

    def _end_what_is_left(self) -> list[Descendant]:
        left = descendants(os.getpid())
        for number, seconds in ((signal.SIGTERM, LEFT_GRACE), (signal.SIGKILL, KILL_SECONDS)):
            until = time.monotonic() + seconds
            while (now := descendants(os.getpid())) and time.monotonic() < until:
                for one in now:
                    one.signal(number)
                if len(self._asked) > 1 and number == signal.SIGTERM:
                    break
                self._pump(0.1)
                self._reap()
        return left


class RotatingOutput:
    """The command's output on disk: at most two files, of which the older one is deleted."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._path, self._older = folder / OUTPUT, folder / OLDER
        self._max = max_bytes
        self._handle = os.open(
            self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        self._size = os.fstat(self._handle).st_size
        self.lost_bytes = 0

    def write(self, data: bytes) -> None:
        """Append. What a full disk refuses is lost and counted: the command must never wait."""
        if self._size + len(data) > self._max:
            self._turn()
        view = memoryview(data)
        while view:
            try:
                written = os.write(self._handle, view)
            except OSError:
                self.lost_bytes += len(view)
                return
            self._size += written
            view = view[written:]

    def _turn(self) -> None:
        try:
            os.replace(self._path, self._older)
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return  # then the file grows on
        os.close(self._handle)
        self._handle, self._size = handle, 0


def main() -> int:
    """Read the order, then run it."""
    order = decode(sys.stdin.buffer.read(), Order)
    if order is None:
        return 2  # the supervisor could not go on, and said why
    return Keeper(Path(sys.argv[1]), order).run()


if __name__ == "__main__":
    sys.exit(main())

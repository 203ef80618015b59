"""The one way we start programs: with a deadline, in a group of their own, dying with us.

A child is started through a launcher (``setpriv --pdeathsig``, or a few lines of Python where
util-linux lacks it) that asks the kernel to kill it when its parent ends, also when the parent is
killed with SIGKILL. The kernel means the parent *thread* (``man 2 PR_SET_PDEATHSIG``), so all
children are forked by one thread that lives as long as the process. ``preexec_fn`` is not used: it
forks a process full of foreign threads (Ray's, gRPC's) and runs Python in the copy.
"""

from __future__ import annotations

import atexit
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from queue import SimpleQueue
from typing import IO, Any

import msgspec

from ray_sentinel.errors import MissingPartError

POLL = 0.1
"""Seconds between two looks whether a program has ended while its pipes are still open."""
KILL_GRACE = 1.0
"""Seconds to wait for a killed child to be gone; one in D state stays longer."""

_PYTHON_LAUNCHER = (
    "import ctypes,os,sys;"
    "ctypes.CDLL(None).prctl(1,9,0,0,0);"
    "os.getppid()==int(sys.argv[1]) or os._exit(1);"
    "os.execvp(sys.argv[2],sys.argv[2:])"
)

_STILL_OURS = '[ "$PPID" = "$0" ] && exec "$@"'


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended. ``stdout`` and ``stderr`` hold at most the bytes that were allowed."""

    argv: tuple[str, ...]
    returncode: int | None
    """Negative for a signal, as in ``subprocess``; None where it could not be killed."""
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    timed_out: bool = False
    truncated: bool = False
    pid: int = 0

    @property
    def ok(self) -> bool:
        """It ended by itself, in time, with status 0."""
        return self.returncode == 0 and not self.timed_out

    def explain(self) -> str:
        """One line that says how it went wrong."""
        name = os.path.basename(self.argv[0])
        if self.timed_out and self.returncode is None:
            return f"{name} (pid {self.pid}) cannot be killed: it hangs in the kernel"
        if self.timed_out:
            return f"{name} was ended after {self.seconds:.1f} s"
        last = self.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return f"{name} ended with status {self.returncode}" + (
            f": {last[0][:300]}" if last else ""
        )


class Spawner:
    """Forks children from one thread, so that the parent-death signal means this process."""

    def __init__(self) -> None:
        self._requests: SimpleQueue[tuple[Future[Any], Any, dict[str, Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """``subprocess.Popen`` on the spawning thread; raises what Popen raises."""
        with self._lock:
            # After a fork the thread does not exist in the child.
            if self._thread is None or self._pid != os.getpid():
                self._requests = SimpleQueue()
                self._pid = os.getpid()
                self._thread = threading.Thread(
                    target=self._serve, name="ray-sentinel-spawner", daemon=True
                )
                self._thread.start()
        future: Future[subprocess.Popen[bytes]] = Future()
        self._requests.put((future, argv, options))
        return future.result()

    def _serve(self) -> None:
        while True:
            future, argv, options = self._requests.get()
            try:
                future.set_result(subprocess.Popen(argv, **options))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                future.set_exception(error)


_spawner = Spawner()


@lru_cache(maxsize=1)
def _setpriv() -> str | None:
    path = shutil.which("setpriv")
    if path is None:
        return None
    probe = _spawner.popen(
        [path, "--pdeathsig", "KILL", "/bin/sh", "-c", "exit 0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return path if probe.wait(timeout=5) == 0 else None
    except subprocess.TimeoutExpired:
        probe.kill()
        return None


def dying_with_us(argv: Sequence[str]) -> list[str]:
    """``argv`` behind a launcher that has the kernel kill it when this process ends.

    A parent that ended before the launcher could ask for that sends no signal any more: so the
    launcher looks afterwards whether its parent is still this process, and else does not start it.
    """
    if setpriv := _setpriv():
        mine = str(os.getpid())
        return [setpriv, "--pdeathsig", "KILL", "/bin/sh", "-c", _STILL_OURS, mine, *argv]
    return [sys.executable, "-I", "-S", "-c", _PYTHON_LAUNCHER, str(os.getpid()), *argv]


def spawn(
    argv: Sequence[str],
    *,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    pass_fds: Sequence[int] = (),
    death_signal: bool = True,
    outlives_us: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a long-lived child in its own session; it is killed when this process ends.

    ``death_signal=False`` is for a child that itself ends with its whole group when its stdin
    closes: the kernel's signal would reach the child alone, and before it could do so.
    ``outlives_us`` is for one that is to be found again by the next life of this process.
    Raises MissingPartError if the program is not there, OSError if it cannot be started.
    """
    program = argv[0] if os.sep in argv[0] else shutil.which(argv[0])
    if program is None or not os.path.exists(program):
        raise MissingPartError(f"{argv[0]} is not installed, or not on PATH")
    command = [program, *argv[1:]]
    child = _spawner.popen(
        dying_with_us(command) if death_signal and not outlives_us else command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=dict(env) if env is not None else None,
        cwd=cwd,
        pass_fds=tuple(pass_fds),
        start_new_session=True,
        close_fds=True,
        bufsize=0,
    )
    if not outlives_us:
        _children[child.pid] = child
    return child


_children: dict[int, subprocess.Popen[bytes]] = {}


def end(child: subprocess.Popen[bytes], *, grace: float = 0.0) -> bool:
    """End a child and its whole group: SIGTERM and ``grace`` seconds first, if any, then SIGKILL.

    Returns False where it is still there afterwards (D state): nothing can end it then.
    """
    if grace > 0:
        _signal_group(child, signal.SIGTERM)
        if _gone(child, grace):
            _signal_group(child, signal.SIGKILL)
            return True
    _signal_group(child, signal.SIGKILL)
    return _gone(child, KILL_GRACE)


def kill(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL a child's whole group and do not wait; ``reap`` tells when it is gone."""
    _signal_group(child, signal.SIGKILL)


def reap(child: subprocess.Popen[bytes]) -> int | None:
    """The exit status of a child that has ended, as in ``subprocess``; None while it is there."""
    status = child.poll()
    if status is not None:
        _children.pop(child.pid, None)
    return status


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The child leads its own session, so the group's id is its pid and stays reserved while any
    # member lives; a reaped leader with no group left gives ProcessLookupError.
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _gone(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    _children.pop(child.pid, None)
    return True


@atexit.register
def end_all() -> None:
    """SIGKILL the group of every child that is still there, as at the end of this process."""
    for child in list(_children.values()):
        if child.poll() is None:
            _signal_group(child, signal.SIGKILL)


def run(
    argv: Sequence[str],
    *,
    deadline: float,
    max_output: int = 16 << 20,
    input: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    on_start: Callable[[int], None] | None = None,
) -> Completed:
    """Run a program to its end or to its deadline (seconds), whichever comes first.

    ``on_start`` is told its pid, which is also its group's. Output past ``max_output`` bytes per
    stream is dropped and the program goes on. At the deadline its whole group is killed.
    Raises MissingPartError if the program is not there.
    """
    started = time.monotonic()
    child = spawn(argv, stdin=subprocess.PIPE if input else subprocess.DEVNULL, env=env, cwd=cwd)
    if on_start is not None:
        on_start(child.pid)
    drain = _Drain(child, max_output, input)
    finished = _wait(child, drain, started + deadline)
    if not finished:
        end(child)
        drain.until(time.monotonic() + 0.2)
    else:
        # What the program left behind in its group goes with it.
        _signal_group(child, signal.SIGKILL)
        _children.pop(child.pid, None)
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


def _wait(child: subprocess.Popen[bytes], drain: _Drain, moment: float) -> bool:
    """Drain until the program has ended (True) or until the monotonic ``moment`` (False)."""
    while True:
        closed = drain.until(min(moment, time.monotonic() + POLL))
        if child.poll() is not None:
            # What it left behind may hold the pipes open for ever: take what is in them, no more.
            return closed or drain.until(time.monotonic() + POLL) or True
        left = moment - time.monotonic()
        if left <= 0:
            return False
        if closed:
            try:
                child.wait(timeout=left)
            except subprocess.TimeoutExpired:
                return False


class _Drain:
    """Feeds stdin and reads both outputs of a child without ever waiting for only one of them."""

    def __init__(self, child: subprocess.Popen[bytes], limit: int, data: bytes) -> None:
        self.out, self.err = bytearray(), bytearray()
        self.truncated = False
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

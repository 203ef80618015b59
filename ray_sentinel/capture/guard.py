"""Runs an intrusive tool so that the traced process continues unchanged afterwards.

Before: the pid must still belong to the intended process, which must be not stopped, not blocked in
the kernel (an attach would hang until it wakes) and not traced by somebody else. Afterwards: a
process that the tool left stopped, and that was not stopped before, is continued; if we are killed
meanwhile, a child of ours does so (``watchman``). That SIGCONT is the only signal that is ever sent
to a training process, and it goes through a pidfd, so never to a later process with the same pid.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time

import msgspec

from ray_sentinel import signals
from ray_sentinel.capture.guarded import Watched
from ray_sentinel.capture.states import (
    read_state,
    runs,
    same_process,
    tracer_of,
)
from ray_sentinel.capture.tracer import Traced, Tracer
from ray_sentinel.errors import MissingPartError
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.progress import STOPPED
from ray_sentinel.model.stacks import StackTrace, Tool
from ray_sentinel.progress.proc.pidfd import open_pidfd
from ray_sentinel.progress.proc.proc_stat import read_stat

SETTLE = 2.0
"""Seconds that a traced process has to run again; after that, nothing more is tried."""
_LOOK = 0.002
"""Seconds between two checks of the state while a tool runs."""


def trace(tracer: Tracer, process: ProcessId, deadline: float) -> Traced:
    """Run ``tracer`` against ``process``; its failures are in the trace's error.

    Raises only bugs in the tracer's own code, once the process runs again.
    """
    if reason := tracer.available():
        return skipped(tracer, process, reason, absent=True)
    if not same_process(process):
        return skipped(tracer, process, f"{tracer.name}: the process was gone when the tool came")
    if not tracer.intrusive:
        return _checked(_run(tracer, process, deadline), process)
    if reason := _not_now(process.pid):
        return skipped(tracer, process, f"{tracer.name}: not attached: {reason}")
    stat = read_stat(process.pid)
    start = stat.start if stat else process.start
    try:
        handle = _handle(process.pid, start)
    except OSError as error:
        return skipped(tracer, process, f"{tracer.name}: not attached: {error.strerror}")
    if handle is None:
        return skipped(tracer, process, f"{tracer.name}: the process was gone when the tool came")
    try:
        with Watched(process.pid, start) as post, PauseWatch(process.pid) as watch:
            if not post.ready:
                reason = "no child can be started to look after the process meanwhile"
                return skipped(tracer, process, f"{tracer.name}: not attached: {reason}")
            try:
                result = _run(tracer, process, deadline)
            finally:
                # Also if the tracer itself has a bug: the process must not stay stopped.
                continued = _mend(process.pid, start, handle)
        if not runs(process.pid) and same_process(process):
            result = _with_error(result, f"{tracer.name}: the process was left {_how(process.pid)}")
        result = msgspec.structs.replace(result, paused=watch.seconds, continued=continued)
        return _checked(result, process)
    finally:
        if handle >= 0:
            os.close(handle)


def skipped(tracer: Tracer, process: ProcessId, reason: str, *, absent: bool = False) -> Traced:
    """The result of a tool that was not run."""
    known: dict[str, Tool] = {
        "py-spy": "py-spy",
        "py-spy-native": "py-spy-native",
        "gdb": "gdb",
        "cuda-gdb": "cuda-gdb",
    }
    trace_ = StackTrace(
        process=process, tool=known.get(tracer.name, "kernel"), at=time.time(), error=reason
    )
    return Traced(tool=tracer.name, trace=trace_, skipped=True, absent=absent)


def _checked(result: Traced, process: ProcessId) -> Traced:
    """``result``, or an empty one if the process ended meanwhile: the pid may be another
    process's."""
    if same_process(process):
        return result
    error = f"{result.tool}: the process was gone when the tool came"
    trace_ = msgspec.structs.replace(result.trace, threads=(), kernels=(), error=error)
    return msgspec.structs.replace(result, trace=trace_, raw=b"")


def _run(tracer: Tracer, process: ProcessId, deadline: float) -> Traced:
    try:
        return tracer.trace(process, deadline)
    except MissingPartError as error:
        return skipped(tracer, process, str(error), absent=True)
    except OSError as error:
        return skipped(tracer, process, f"{tracer.name}: cannot be started: {error}")


def _not_now(pid: int) -> str:
    state = read_state(pid)
    if state in STOPPED:
        return f"the process is stopped (state {state}); only tools that do not attach are used"
    if state == "D":
        return "it is blocked in the kernel (state D): a debugger would hang with it"
    if tracer := tracer_of(pid):
        return f"it is traced by process {tracer} already"
    return ""


def _handle(pid: int, start: int) -> int | None:
    """A pidfd; None if the process is gone, -1 where the kernel has no pidfds. Raises OSError
    if there is no room for one."""
    try:
        return open_pidfd(pid, start)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
            return -1
        raise


def _mend(pid: int, start: int, handle: int) -> bool:
    """Wait until the process runs again; continue it if it stays stopped with no tracer."""
    continued = False
    end = time.monotonic() + SETTLE
    quiet_since: float | None = None
    while time.monotonic() < end:
        if runs(pid):
            return continued
        # While our tool still lets go, the kernel shows it as the tracer.
        if tracer_of(pid) == 0:
            now = time.monotonic()
            quiet_since = now if quiet_since is None else quiet_since
            if now - quiet_since > 0.05:
                _continue(pid, start, handle)
                continued, quiet_since = True, None
        time.sleep(_LOOK * 5)
    return continued


def _how(pid: int) -> str:
    tracer = tracer_of(pid)
    return f"in the hands of process {tracer}" if tracer else f"in state {read_state(pid)}"


def _with_error(result: Traced, error: str) -> Traced:
    told = "; ".join(filter(None, (result.trace.error, error)))
    trace_ = msgspec.structs.replace(result.trace, error=told)
    return msgspec.structs.replace(result, trace=trace_)


def _continue(pid: int, start: int, handle: int) -> None:
    # Perhaps not ours to continue; its state is checked again.
    with contextlib.suppress(PermissionError):
        signals.send_through(handle, pid, start, signal.SIGCONT)


class PauseWatch:
    """Measures for how long a process is stopped while a tool runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="ray-sentinel-pause", daemon=True)
        self.seconds = 0.0

    def __enter__(self) -> PauseWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(timeout=1.0)

    def _poll(self) -> None:
        last, was_stopped = time.monotonic(), False
        while not self._done.wait(_LOOK):
            now = time.monotonic()
            if was_stopped:
                self.seconds += now - last
            was_stopped = read_state(self._pid) in STOPPED
            last = now

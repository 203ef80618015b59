"""``py-spy dump --nonblocking --json``: Python stacks without stopping the process.

It reads another process's memory (``process_vm_readv``), so it needs the right to ptrace but does
not attach; a process that is stopped by a signal can be read too. Because the process runs on, a
look may catch it in the middle of a call and fail: it is repeated a few times.
"""

from __future__ import annotations

import time

import msgspec

from ray_sentinel import process as programs
from ray_sentinel.capture.environment import clean_environment, find_program
from ray_sentinel.capture.refusal import why_refused
from ray_sentinel.capture.states import read_state
from ray_sentinel.capture.tracer import Traced
from ray_sentinel.evidence.stacks import parse
from ray_sentinel.evidence.stacks.readers.problems import explain_output
from ray_sentinel.evidence.stacks.readers.pyspy import as_text
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackTrace, ThreadStack

MISSING = "py-spy is not installed on this node: pip install py-spy"
CROWDED = 6.0
"""Seconds beyond its deadline for a py-spy that waits for a CPU. With twenty ranks side by side on
two cores, its 0.1 s of work take three seconds, and what it returns then is as good."""
_TRIES = 3
"""Most attempts without pausing the process: one fails where a stack changes while it is read."""


class PySpy:
    """Python stacks without a pause."""

    name = "py-spy"
    prefix = "pyspy"
    intrusive = False

    def available(self) -> str:
        """Empty where py-spy is there."""
        return "" if find_program("py-spy") else MISSING

    def trace(self, process: ProcessId, deadline: float) -> Traced:
        """Python stacks of all threads, with who holds the GIL."""
        started = time.monotonic()
        done = run_py_spy(process, deadline, "--nonblocking", "--json", crowded=CROWDED)
        for _ in range(_TRIES - 1):
            left = started + deadline - time.monotonic()
            if done.ok or done.timed_out or _refused(done.stderr) or left < 0.1:
                break
            done = run_py_spy(process, left, "--nonblocking", "--json", crowded=CROWDED)
        trace = _with_state(read_py_spy(process, done))
        return Traced(
            tool=self.name,
            trace=trace,
            raw=as_text(trace).encode() if trace.threads else b"",
            seconds=time.monotonic() - started,
            timed_out=done.timed_out,
        )


def run_py_spy(
    process: ProcessId, deadline: float, *options: str, crowded: float = 0.0
) -> programs.Completed:
    """Run ``py-spy dump``; ``crowded`` as in ``process.run``, for runs that do not stop the
    process.

    Raises MissingPartError if it is not installed.
    """
    program = find_program("py-spy") or "py-spy"
    argv = [program, "dump", *options, "--pid", str(process.pid)]
    return programs.run(argv, deadline=max(deadline, 0.1), env=clean_environment(), crowded=crowded)


def read_py_spy(process: ProcessId, done: programs.Completed) -> StackTrace:
    """The output of py-spy, or why there is none."""
    at = time.time()
    if done.ok and done.stdout.strip():
        (trace, *_) = parse(done.stdout, process, at, hint="pyspy")
        if trace.threads:
            return trace
    error = done.explain()
    output = done.stderr.decode("utf-8", "replace")
    if not done.timed_out:
        error = explain_output("py-spy", output)
        if _refused(done.stderr):
            error = f"py-spy: {why_refused(process.pid)}"
    return StackTrace(process=process, tool="py-spy", at=at, error=error)


def _refused(stderr: bytes) -> bool:
    lowered = stderr.lower()
    return b"permission" in lowered or b"eperm" in lowered or b"not permitted" in lowered


def _with_state(trace: StackTrace) -> StackTrace:
    """Add the scheduler's state: py-spy cannot tell idle from active on older Pythons."""
    pid = trace.process.pid
    state = read_state(pid)
    if not state:
        return trace
    threads = tuple(_thread_with_state(pid, thread) for thread in trace.threads)
    return msgspec.structs.replace(trace, threads=threads, state=state)


def _thread_with_state(pid: int, thread: ThreadStack) -> ThreadStack:
    tid = pid if thread.main else thread.tid
    state = read_state(pid, tid) if tid else ""
    active = state == "R" if state and thread.active is None else thread.active
    return msgspec.structs.replace(thread, active=active, state=state)


TRACER = PySpy()

"""``gdb -batch -ex "thread apply all bt"``: machine code of all threads. Stops the process."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ray_sentinel import process as programs
from ray_sentinel.capture.environment import clean_environment, find_program
from ray_sentinel.capture.refusal import why_refused
from ray_sentinel.capture.tracer import Traced
from ray_sentinel.evidence.stacks import parse
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackTrace

# No start-up files, no scripts of shared objects, no questions, no lines cut to a terminal's width.
_SETTINGS = ("auto-load no", "pagination off", "confirm off", "width 0", "height 0", "prompt")
_REFUSED = ("Operation not permitted", "ptrace: ", "Could not attach")


class Gdb:
    """Native stacks."""

    name = "gdb"
    prefix = "gdb"
    intrusive = True

    def available(self) -> str:
        """Empty where gdb is there."""
        return "" if find_program("gdb") else "gdb is not installed on this node"

    def trace(self, process: ProcessId, deadline: float) -> Traced:
        """Backtraces of all threads."""
        argv = gdb_command(find_program("gdb") or "gdb", process)
        done = run_gdb(argv, BACKTRACES, deadline)
        return Traced(
            tool=self.name,
            trace=read_gdb(process, done, "gdb"),
            raw=gdb_file(done),
            seconds=done.seconds,
            timed_out=done.timed_out,
        )


ATTACHED = "ray-sentinel: attached"
"""What the debugger prints once the process stands still and the commands begin."""
DETACHING = "ray-sentinel: detaching"
"""What it prints once they are over and it lets the process go."""
BACKTRACES = ("thread apply all bt",)
DETACH_SECONDS = 5.0
"""Seconds that a debugger has to detach and end once its deadline has come, before it is killed."""


def run_gdb(
    argv: list[str], commands: Sequence[str], deadline: float, detach: float = DETACH_SECONDS
) -> programs.Completed:
    """Run gdb or a debugger derived from it, with these commands while it is attached.

    It reads them from its standard input, and at the deadline SIGINT breaks off the one under way:
    what comes last is always that it detaches. One that is killed while it attaches leaves the
    process stopped; one of CUDA's that is ended by SIGTERM or killed while a kernel is in focus
    does not let go, and the process dies of SIGSEGV or never goes on (cuda-gdb 13.0, driver 580).
    SIGINT is sent only while the process stands still: before and after, gdb hands it on to the
    process (``default_quit_handler`` in gdb/target.c), which ends a training. Raises what
    ``process.run`` does.
    """
    lines = (f"echo {ATTACHED}\\n", *commands, f"echo {DETACHING}\\n", "detach", "quit")
    return programs.run(
        argv,
        deadline=deadline,
        input="".join(f"{line}\n" for line in lines).encode(),
        env=clean_environment(),
        interrupts=programs.Interrupts(
            after=ATTACHED.encode(), until=DETACHING.encode(), seconds=detach
        ),
    )


def gdb_command(program: str, process: ProcessId) -> list[str]:
    """The command line of gdb, or of a debugger derived from it, attached to ``process``."""
    settings = (word for one in _SETTINGS for word in ("-iex", f"set {one}"))
    return [program, "-nx", "-q", *settings, "-p", str(process.pid)]


def read_gdb(process: ProcessId, done: programs.Completed, hint: str) -> StackTrace:
    """The output of gdb or cuda-gdb, or why there is none."""
    at = time.time()
    (trace, *_) = parse(done.stdout, process, at, hint=hint)
    if any(thread.frames for thread in trace.threads):
        if not done.timed_out:
            return trace
        error = f"{done.explain()}: only a part of the stacks was read"
    else:
        complaint = done.stderr.decode("utf-8", "replace")
        error = done.explain()
        if not done.timed_out and any(word in complaint for word in _REFUSED):
            error = f"{trace.tool}: {why_refused(process.pid)}"
        elif not done.timed_out:
            (said, *_) = parse(complaint, process, at, hint=hint)
            error = said.error or error
    return StackTrace(
        process=process,
        tool=trace.tool,
        at=at,
        threads=trace.threads,
        kernels=trace.kernels,
        kernels_listed=trace.kernels_listed,
        error=error,
    )


def gdb_file(done: programs.Completed) -> bytes:
    """The backtraces, and below them gdb's complaints."""
    complaints = b"".join(b"# " + line + b"\n" for line in done.stderr[:16_384].splitlines())
    return done.stdout + (b"\n# what the debugger said besides:\n" + complaints) * bool(complaints)


TRACER = Gdb()

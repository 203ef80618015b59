"""Kernel stacks, wait channels and system calls from ``/proc``: what a blocked thread waits in.

Needs no tool and stops nobody. ``stack`` is for root (CAP_SYS_ADMIN), ``syscall`` and ``wchan`` for
those who may ptrace. Only files that cannot block are read: ``cmdline`` and ``maps`` wait for the
process's memory lock, which a thread in D state may hold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from pathlib import Path

from ray_sentinel.capture.tracer import Traced
from ray_sentinel.evidence.stacks import parse
from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackTrace
from ray_sentinel.progress.proc.proc_stat import read_stat

MAX_TASKS = 1024
"""Most threads of one process that are looked at; the others are left out."""


class Kernel:
    """Kernel stacks of all tasks."""

    name = "kernel"
    prefix = "kernel"
    intrusive = False

    def available(self) -> str:
        """Empty where /proc is there."""
        return "" if os.path.exists("/proc/self/stat") else "there is no /proc here"

    def trace(self, process: ProcessId, deadline: float) -> Traced:
        """All tasks, the main one first; stops at the deadline."""
        return trace_tasks(process, deadline)


def trace_tasks(process: ProcessId, deadline: float, only: Collection[int] | None = None) -> Traced:
    """The tasks of a process, or those of ``only``, as text and as a trace."""
    started = time.monotonic()
    stat = read_stat(process.pid)
    # The pid may be another process's by now.
    if stat is None or process.start not in (0, stat.start):
        trace = StackTrace(
            process=process,
            tool="kernel",
            at=time.time(),
            error="kernel: the process was gone when the tool came",
        )
        return Traced(tool="kernel", trace=trace)
    lines = [
        f"Process {process.pid}: {stat.command}",
        f"State: {stat.state}",
    ]
    tids = _tasks(process.pid)
    for tid in tids[:MAX_TASKS] if only is None else [tid for tid in tids if tid in only]:
        if time.monotonic() - started > deadline:
            lines.append(f"# the deadline of {deadline:g} s was reached here")
            break
        lines += _task(process.pid, tid)
    text = "\n".join(lines) + "\n"
    (trace, *_) = parse(text, process, time.time(), hint="kernel")
    return Traced(tool="kernel", trace=trace, raw=text.encode(), seconds=time.monotonic() - started)


def _tasks(pid: int) -> list[int]:
    try:
        tids = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []
    return sorted(tids, key=lambda tid: (tid != pid, tid))


def _task(pid: int, tid: int) -> list[str]:
    stat = read_stat(pid, tid)
    if stat is None:
        return []
    task = Path(f"/proc/{pid}/task/{tid}")
    wchan, call = kernel_text(task / "wchan"), kernel_text(task / "syscall").split(" ")[0]
    head = f'Thread {tid} ({stat.state}) "{stat.command}"'
    head += f" wchan={wchan}" if wchan not in ("", "0") else ""
    head += f" syscall={call}" if call else ""
    return ["", head, *("    " + line for line in kernel_text(task / "stack").splitlines())]


TRACER = Kernel()

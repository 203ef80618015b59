"""Kernel stacks: ``/proc/<pid>/stack``, one a task, and the kernel log's hung-task reports.

A frame is ``[<0>] futex_wait+0x67/0x120 [module]``. Which task it belongs to is said by a header;
our own captures, ``head`` or ``tail`` over several files, and sysrq-w each have one::

    Thread 4711 (S) "python" wchan=futex_do_wait syscall=202
    ==> /proc/4711/task/4712/stack <==
    task:python          state:D stack:0     pid:4711  ppid:1
    python          D    0  4711      1 0x00000004
"""

from __future__ import annotations

import re

from ray_sentinel.evidence.stacks import text as tx
from ray_sentinel.evidence.stacks.problems import explain_output
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Frame, StackTrace, ThreadStack

_FRAME = re.compile(
    r"^\s*(?:\[[^\[\]<>]{1,40}\]\s*)?(?:\[<[0-9a-fA-F]+>\]\s*)?(?:\?\s+)?"
    r"([A-Za-z_][\w.]*)\+0x[0-9a-fA-F]+/0x[0-9a-fA-F]+(?:\s+\[(\w+)[^\]]*\])?\s*$"
)
_HEADERS = (
    re.compile(
        r"^\s*Thread (?P<tid>\d+)(?: \((?P<state>[A-Za-z])[^)]*\))?(?: \"(?P<name>.*?)\")?"
        r"(?:.*?\bwchan=(?P<wchan>[\w.]+))?"
    ),
    re.compile(r"/proc/(?P<pid>\d+)/(?:task/(?P<tid>\d+)/)?stack\b"),
    re.compile(r"task:(?P<name>.+?)\s+state:(?P<state>[A-Z]).*?\bpid:\s*(?P<tid>\d+)"),
    re.compile(r"^\s*(?:tid|task|lwp)[ :=#]+(?P<tid>\d+)\b", re.IGNORECASE),
    # Linux before 5.11: NAME STATE [PC] STACK PID PPID FLAGS
    re.compile(
        r"^\s*(?:\[[^\[\]<>]{1,40}\]\s*)?(?P<name>\S.{0,30}?)\s+(?P<state>[DIRStTXZ])\s+"
        r"(?:[0-9a-f]{16}\s+|running task\s+)?\d+\s+(?P<tid>\d+)\s+\d+\s+0x[0-9a-f]{8,16}\s*$"
    ),
)
_PROCESS = re.compile(r"^\s*Process (\d+): ?(.*)$|^\s*Pid:\s*(\d+)\s*$")
_STATE = re.compile(r"^\s*State:\s*([A-Za-z])\b")
_WCHAN = re.compile(r"^\s*wchan:?\s+([A-Za-z_][\w.]*)\s*$")


KERNEL = "kernel"
"""The ``file`` of a kernel frame, followed by ``:MODULE`` where it is in one."""


def looks_like(text: str) -> bool:
    """Whether ``text`` holds kernel frames."""
    if "+0x" in text and any(_FRAME.match(line) for line in tx.lines(text[:200_000])):
        return True
    head = list(tx.lines(text[:4_000]))[:20]
    return any(_STATE.match(line) or _WCHAN.match(line) for line in head)


class _Task:
    """The task that is being read."""

    def __init__(self, tid: int | None, name: str, state: str, wchan: str) -> None:
        self.tid, self.name, self.state = tid, name, state
        self.wchan = wchan if wchan not in ("", "0") else ""
        self.frames: list[Frame] = []

    def thread(self, pid: int) -> ThreadStack:
        frames = self.frames or ([tx.frame(self.wchan, KERNEL, native=True)] if self.wchan else [])
        return ThreadStack(
            tid=self.tid,
            name=self.name,
            frames=tx.shared(frames),
            main=self.tid is None or (pid != 0 and self.tid == pid),
            state=self.state,
        )


def parse(text: str, process: ProcessId, at: float = 0.0) -> tuple[StackTrace, ...]:
    """All tasks in ``text`` as one trace."""
    pid, command, state = process.pid, "", ""
    tasks: list[_Task] = []
    for line in tx.lines(text):
        if match := _PROCESS.match(line):
            pid = pid or tx.number(match.group(1) or match.group(3))
            command = command or match.group(2) or ""
        elif match := _FRAME.match(line):
            if not tasks:
                tasks.append(_Task(None, "", state, ""))
            tasks[-1].frames.append(
                tx.frame(match.group(1), _place(match.group(2)), 0, native=True)
            )
        elif match := _STATE.match(line):
            state = match.group(1)
        elif match := _WCHAN.match(line):
            if not tasks:
                tasks.append(_Task(None, "", state, ""))
            tasks[-1].wchan = match.group(1)
        elif found := _header(line):
            header_pid, task = found
            pid = pid or header_pid
            tasks.append(task)
    if len(tasks) > 1 and tasks[0].tid is None:
        tasks.pop(0)  # a log's beginning: whose frames these are was said above it
    threads = tuple(task.thread(pid) for task in tasks)
    state = state or next((task.state for task in tasks if task.state and task.tid == pid), "")
    who = process if pid == process.pid else ProcessId(process.host, pid, process.start)
    empty = not any(thread.frames for thread in threads)
    return (
        StackTrace(
            process=who,
            tool="kernel",
            at=at,
            threads=threads,
            error=_error(text, state) if empty else "",
            command=command,
            state=state,
        ),
    )


def _header(line: str) -> tuple[int, _Task] | None:
    for pattern in _HEADERS:
        if match := pattern.search(line):
            groups = match.groupdict()
            pid = tx.number(groups.get("pid"))
            tid = tx.number(groups.get("tid")) or pid or None
            name, state = groups.get("name") or "", groups.get("state") or ""
            return pid, _Task(tid, name.strip(), state, groups.get("wchan") or "")
    return None


def _error(text: str, state: str) -> str:
    if state:
        return f"only the state ({state}) is known: kernel stacks are for root (CAP_SYS_ADMIN)"
    return explain_output("/proc/<pid>/stack", text)


def _place(module: str | None) -> str:
    return f"{KERNEL}:{module}" if module else KERNEL

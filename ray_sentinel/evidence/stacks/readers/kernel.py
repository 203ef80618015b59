"""Kernel stacks: ``/proc/<pid>/stack``, one a task, and the kernel log's hung-task reports.

A frame is ``[<0>] futex_wait+0x67/0x120 [module]``. A header says which task it belongs to; our own
captures, ``head`` or ``tail`` over several files, and sysrq-w each have one::

    Thread 4711 (S) "python" wchan=futex_do_wait syscall=202
    ==> /proc/4711/task/4712/stack <==
    task:python          state:D stack:0     pid:4712  tgid:4711  ppid:1
    python          D    0  4711      1 0x00000004

The last two are the kernel log's (``sched_show_task`` in kernel/sched/core.c), which lists tasks of
many processes. Their process (tgid) is named since Linux 6.9; before, each task is taken for a
process, as the main threads of ranks mostly are.
"""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.evidence.stacks.readers import text as tx
from ray_sentinel.evidence.stacks.readers.problems import explain_output
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
    re.compile(r"^\s*(?:tid|task|lwp)[ :=#]+(?P<tid>\d+)\b", re.IGNORECASE),
)
_REPORTS = (
    re.compile(
        r"task:(?P<name>.+?)\s+state:(?P<state>[A-Z]).*?\bpid:\s*(?P<tid>\d+)"
        r"(?:\s+tgid:\s*(?P<pid>\d+))?(?:\s+ppid:\s*(?P<ppid>\d+))?"
    ),
    # Linux before 5.11: NAME STATE [PC] STACK PID PPID FLAGS
    re.compile(
        r"^\s*(?:\[[^\[\]<>]{1,40}\]\s*)?(?P<name>\S.{0,30}?)\s+(?P<state>[DIRStTXZ])\s+"
        r"(?:[0-9a-f]{16}\s+|running task\s+)?\d+\s+(?P<tid>\d+)\s+(?P<ppid>\d+)"
        r"\s+0x[0-9a-f]{8,16}\s*$"
    ),
    # The task that was on the CPU: soft lockups, RCU stalls, oopses.
    re.compile(r"\bPID:\s*(?P<tid>\d+)\s+Comm:\s*(?P<name>\S+)"),
)
_KTHREADD = 2
"""Process number of the parent of all kernel threads, none of which is a rank."""
_KERNEL_THREAD = re.compile(
    r"swapper|kworker|khungtaskd|ksoftirqd|migration|rcu\w|kswapd|jbd2|watchdog|kthreadd"
)
_PROCESS = re.compile(r"^\s*Process (\d+): ?(.*)$|^\s*Pid:\s*(\d+)\s*$")
_TO_USER = re.compile(r"exit_to_user_mode")
"""In the innermost function of a task that runs its program: its CPU was given to another
meanwhile, and it waits for nothing in the kernel (``kernel/entry/common.c``)."""
_STATE = re.compile(r"^\s*State:\s*([A-Za-z])\b")
_WCHAN = re.compile(r"^\s*wchan:?\s+([A-Za-z_][\w.]*)\s*$")


KERNEL = "kernel"
"""The ``file`` of a kernel frame, followed by ``:MODULE`` where the frame is in a module."""


def looks_like(text: str) -> bool:
    """Whether ``text`` holds kernel frames."""
    if "+0x" in text and any(_FRAME.match(line) for line in tx.lines(text)):
        return True
    head = list(tx.lines(text[:4_000]))[:20]
    return any(_STATE.match(line) or _WCHAN.match(line) for line in head)


def is_log(text: str) -> bool:
    """Whether ``text`` is a kernel log, which contains tasks of any process of its host."""
    return any(pattern.search(line) for line in tx.lines(text) for pattern in _REPORTS)


class _Task:
    """The task that is being read."""

    def __init__(self, tid: int | None, name: str = "", state: str = "", wchan: str = "") -> None:
        self.tid, self.name, self.state = tid, name, state
        self.wchan = wchan if wchan not in ("", "0") else ""
        self.frames: list[Frame] = []
        self.process = 0
        """The pid of its process, where the kernel log tells of it."""
        self.of_kernel = False
        """It is a thread of the kernel's own."""

    def thread(self, pid: int) -> ThreadStack:
        frames = self.frames or ([tx.frame(self.wchan, KERNEL, native=True)] if self.wchan else [])
        if frames and _TO_USER.search(frames[0].function):
            frames = []
        return ThreadStack(
            tid=self.tid,
            name=self.name,
            frames=tx.shared(frames),
            main=self.tid is None or (pid != 0 and self.tid == pid),
            state=self.state,
        )


class _Text:
    """What a text says, line by line."""

    def __init__(self, pid: int) -> None:
        self.pid, self.command, self.state = pid, "", ""
        self.tasks: list[_Task] = []

    def feed(self, line: str) -> None:
        if match := _PROCESS.match(line):
            self.pid = self.pid or tx.number(match.group(1) or match.group(3))
            self.command = self.command or match.group(2) or ""
        elif match := _FRAME.match(line):
            frame = tx.frame(match.group(1), _place(match.group(2)), 0, native=True)
            self._task().frames.append(frame)
        elif match := _STATE.match(line):
            self.state = match.group(1)
        elif match := _WCHAN.match(line):
            self._task().wchan = match.group(1)
        elif found := _header(line):
            header_pid, task = found
            self.pid = self.pid or header_pid
            self.tasks.append(task)
        elif reported := _reported(line):
            self.tasks.append(reported)

    def _task(self) -> _Task:
        if not self.tasks:
            self.tasks.append(_Task(None, state=self.state))
        return self.tasks[-1]

    def processes(self) -> dict[int, list[_Task]]:
        """Tasks by the pid of their process; 0 if that is not known."""
        tasks = self.tasks
        if len(tasks) > 1 and tasks[0].tid is None:
            tasks = tasks[1:]  # a log's beginning: whose frames these are was said above it
        if self.pid or not any(task.process for task in tasks):
            return {self.pid: tasks}
        # The log repeats itself while a task hangs: the last report counts.
        latest = {task.tid: task for task in tasks if task.process and task.frames}
        ours = [task for task in latest.values() if not task.of_kernel] or list(latest.values())
        found: dict[int, list[_Task]] = {}
        for task in ours:
            found.setdefault(task.process, []).append(task)
        return found or {0: tasks}


def parse(text: str, process: ProcessId, at: float = 0.0) -> tuple[StackTrace, ...]:
    """All tasks in ``text``, as one trace for each process: the kernel log may contain several."""
    said = _Text(process.pid)
    for line in tx.lines(text):
        said.feed(line)
    return tuple(
        _trace(text, said, pid, tasks, process, at) for pid, tasks in said.processes().items()
    )


def _trace(
    text: str, said: _Text, pid: int, tasks: list[_Task], process: ProcessId, at: float
) -> StackTrace:
    threads = tuple(task.thread(pid) for task in tasks)
    leader = next((task for task in tasks if task.tid == pid and task.process), None)
    state = said.state or next((t.state for t in tasks if t.state and t.tid == pid), "")
    who = process if pid == process.pid else ProcessId(process.host, pid, process.start)
    empty = not any(thread.frames for thread in threads)
    return StackTrace(
        process=who,
        tool="kernel",
        at=at,
        threads=threads,
        error=_error(text, state) if empty else "",
        command=said.command or (leader.name if leader else ""),
        state=state,
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


def _reported(line: str) -> _Task | None:
    """The task about which a line of the kernel log begins to report."""
    for pattern in _REPORTS:
        if match := pattern.search(line):
            groups = match.groupdict()
            tid, name = tx.number(groups["tid"]), groups["name"].strip()
            task = _Task(tid, name, groups.get("state") or "")
            task.process = tx.number(groups.get("pid")) or tid
            parent = tx.number(groups.get("ppid"))
            task.of_kernel = parent == _KTHREADD or bool(_KERNEL_THREAD.match(name))
            return task
    return None


def _error(text: str, state: str) -> str:
    if state:
        return f"only the state ({state}) is known: kernel stacks are for root (CAP_SYS_ADMIN)"
    return explain_output("/proc/<pid>/stack", text)


def _place(module: str | None) -> str:
    return f"{KERNEL}:{module}" if module else KERNEL

"""Tasks that stay in uninterruptible sleep (D), with where they wait according to the kernel.

Only ``stat`` is read of every task: unlike ``cmdline`` it never waits for the process's memory
lock, which a stuck process may hold (``man 5 proc``). A task counts if every look finds it in D
state: a short wait for a disk is no trouble.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.masking import mask
from ray_sentinel.model.health import BlockedTask
from ray_sentinel.text import one_line

_MOST = 64
"""Most tasks that are described: a dead mount blocks hundreds alike."""
_FRAMES = 24
"""Most frames of one kernel stack that are shown."""
_KERNEL_THREAD_FLAG = 0x00200000
"""The flag ``PF_KTHREAD`` (``include/linux/sched.h``) of the kernel's own threads, which idle in D
state."""


def blocked_tasks(
    proc: Path = Path("/proc"),
    *,
    looks: int = 2,
    between: float = 0.3,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[BlockedTask, ...]:
    """All tasks of user processes that are in D state at each of the ``looks``, ``between`` seconds
    apart; at most 64."""
    found = _in_d_state(proc)
    for _ in range(looks - 1):
        if not found:
            break
        sleep(between)
        found &= _in_d_state(proc)
    return tuple(_described(proc, pid, tid) for pid, tid in sorted(found)[:_MOST])


def _in_d_state(proc: Path) -> set[tuple[int, int]]:
    found = set()
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            tids = [task.name for task in (entry / "task").iterdir()]
        except OSError:
            continue  # it ended while we looked
        for tid in tids:
            if _is_blocked(kernel_text(entry / "task" / tid / "stat")):
                found.add((int(entry.name), int(tid)))
    return found


def _is_blocked(stat: str) -> bool:
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 7 or fields[0] != "D":
        return False
    return not (fields[6].isdigit() and int(fields[6]) & _KERNEL_THREAD_FLAG)


def _described(proc: Path, pid: int, tid: int) -> BlockedTask:
    task = proc / str(pid) / "task" / str(tid)
    wchan = kernel_text(task / "wchan")
    stack = [line.partition("] ")[2] or line for line in kernel_text(task / "stack").splitlines()]
    name = kernel_text(task / "stat").partition("(")[2].rpartition(")")[0]
    # ``cmdline`` may wait for the memory lock that a blocked process holds: the name must suffice.
    return BlockedTask(
        pid=pid,
        tid=tid,
        name=mask(one_line(name, 64)),
        wchan="" if wchan == "0" else one_line(wchan, 128),
        stack=tuple(one_line(frame, 200) for frame in stack[:_FRAMES]),
    )

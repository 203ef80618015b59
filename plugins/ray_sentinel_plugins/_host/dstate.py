"""Processes in uninterruptible sleep, by the kernel function that they wait in.

One read of ``/proc/<pid>/stat`` for each process (6 µs), which never waits for the process's memory
lock as ``cmdline`` does. That file shows the main thread; a rank's other threads (NCCL's, the data
loader's) are looked at as well, because they block for the same reasons.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from ray_sentinel.api import Metric, Sample
from ray_sentinel_plugins._files import Files, clean

DSTATE = Metric(
    "hw_dstate_processes",
    "gauge",
    "Processes in uninterruptible sleep (D), by the kernel function they wait in.",
    ("wchan",),
)
METRICS = (DSTATE,)
MAX_FUNCTIONS = 64
"""Most functions that get a series; the rest is left out, and a complaint says so."""
MAX_THREADS = 4096
"""Most threads of one rank that are looked at."""
UNKNOWN = "unknown"


def read(files: Files, proc: Path, ranks: Collection[int]) -> Iterator[Sample]:
    """All samples of this subject. ``ranks``: pids whose threads are looked at one by one."""
    waiting: Counter[str] = Counter()
    for name in _processes(files, proc):
        folder = proc / name
        function = _blocked(folder)
        if function is None and (int(name) in ranks or not files.live):
            function = _blocked_thread(folder)
        if function is not None:
            waiting[function] += 1
    functions = sorted(waiting.items(), key=lambda item: (-item[1], item[0]))
    for function, number in files.bounded(functions, MAX_FUNCTIONS, "functions of D state"):
        yield DSTATE(number, clean(function))


def _processes(files: Files, proc: Path) -> list[str]:
    # Unsorted: there may be thousands.
    try:
        return [name for name in os.listdir(proc) if name.isascii() and name.isdigit()]
    except OSError as error:
        files.complain(proc, f"cannot be listed: {error.strerror}")
        return []


def _blocked(folder: Path) -> str | None:
    """The function that a task waits in, or None if it is not in D state (or is gone)."""
    if task_state(read_task(f"{folder}/stat")) != "D":
        return None
    function = read_task(f"{folder}/wchan").decode("utf-8", "replace").strip()
    if function in ("", "0"):
        function = parse_stack(read_task(f"{folder}/stack").decode("utf-8", "replace"))
    return function or UNKNOWN


def _blocked_thread(folder: Path) -> str | None:
    try:
        threads = os.listdir(folder / "task")
    except OSError:
        return None
    for thread in threads[:MAX_THREADS]:
        if thread != folder.name and (function := _blocked(folder / "task" / thread)):
            return function
    return None


def read_task(path: str) -> bytes:
    """The first bytes of a file of a process; empty if it is gone or may not be read."""
    # Thousands of these in a row: a process that ends meanwhile is no news.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(handle, 4096)
    except OSError:
        return b""
    finally:
        os.close(handle)


def task_state(stat: bytes) -> str:
    """The state in ``/proc/<pid>/stat``. The name before it may hold blanks and parentheses.

    >>> task_state(b"42 (a) D (b) R 1 42 42 0")
    'R'
    """
    end = stat.rfind(b") ")
    return stat[end + 2 : end + 3].decode("ascii", "replace") if end > 0 else ""


def parse_stack(text: str) -> str:
    """The innermost function of ``/proc/<pid>/stack``.

    >>> parse_stack("[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]\\n[<0>] __wait_on_bit+0x6c\\n")
    'nfs_wait_bit_killable'
    """
    words = text.split(maxsplit=2)
    return words[1].partition("+")[0] if len(words) > 1 and words[0].startswith("[<") else ""

"""What the threads of a Ray worker tell: whether it is in a process group, and which one trains."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ray_sentinel.progress.proc_stat import parse_schedstat

MAX_THREADS = 2048
"""Whose names are read, of one worker."""

_GROUP_THREADS = ("pt_gloo_", "pt_nccl_", "pt_ucc_", "gloo_tcp_loop")
"""PyTorch names the threads of its process groups so (``c10::setThreadName``)."""


def thread_names(pid: int, proc: Path = Path("/proc")) -> dict[int, str]:
    """The kernel's names of a process's threads, by thread id; empty where it is gone."""
    folder = proc / str(pid) / "task"
    found: dict[int, str] = {}
    try:
        tids = [int(name) for name in os.listdir(folder)]
    except OSError:
        return {}
    for tid in tids[:MAX_THREADS]:
        try:
            found[tid] = (folder / str(tid) / "comm").read_text(errors="replace").strip()
        except OSError:
            continue
    return found


def in_process_group(names: Mapping[int, str]) -> bool:
    """Whether PyTorch has opened a process group in the process with these threads."""
    return any(name.startswith(_GROUP_THREADS) for name in names.values())


class TrainingThread:
    """The thread that trains in a worker of Ray Train, whose main thread serves the controller.

    A thread that Python or Ray starts has its maker's name. Of those beside the main thread, the
    one that ever used most CPU time from one look to the next: while training hangs, Ray's own
    threads go on and in time outdo all that it used.
    """

    def __init__(self) -> None:
        self._used: dict[int, float] = {}
        self._most: dict[int, float] = {}
        """CPU seconds; what a thread had used when it was first seen counts as one look's."""

    def find(self, pid: int, names: Mapping[int, str], proc: Path = Path("/proc")) -> int:
        """Its thread id, of the threads ``names`` of process ``pid``; 0 where there is none."""
        used: dict[int, float] = {}
        for tid, name in names.items():
            if tid == pid or name != names.get(pid):
                continue
            try:
                data = (proc / str(pid) / "task" / str(tid) / "schedstat").read_bytes()
                used[tid] = parse_schedstat(data).cpu_seconds
            except (OSError, ValueError):
                continue
        self._most = {
            tid: max(self._most.get(tid, 0.0), seconds - self._used.get(tid, 0.0))
            for tid, seconds in used.items()
        }
        self._used = used
        return max(self._most, key=lambda tid: self._most[tid], default=0)

"""A process's state in ``/proc``, and whether its pid still names the same process."""

from __future__ import annotations

import os
import signal

from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.progress import STOPPED
from ray_sentinel.progress.proc.proc_stat import read_schedstat, read_stat, task_ids


def read_state(pid: int, tid: int | None = None) -> str:
    """One letter, of the main thread or of ``tid``; empty if it does not exist."""
    stat = read_stat(pid, tid)
    return stat.state if stat else ""


def read_switches(pid: int, tid: int) -> int | None:
    """How often a thread has been put on a CPU; None as for ``read_schedstat``."""
    found = read_schedstat(pid, tid)
    return found.switches if found else None


def any_stopped(pid: int) -> bool:
    """Whether the process, or one of its threads alone, is stopped or traced."""
    if read_state(pid) in STOPPED:
        return True
    stats = (read_stat(pid, tid) for tid in task_ids(pid))
    return any(stat is not None and stat.state in STOPPED for stat in stats)


def runs(pid: int) -> bool:
    """Whether no thread of the process is stopped or about to be, and nobody traces it.

    A debugger that dies while it attaches leaves a SIGSTOP behind, which a process that gets no CPU
    has not obeyed yet.
    """
    return not any_stopped(pid) and not tracer_of(pid) and not _stop_pending(pid)


def _stop_pending(pid: int) -> bool:
    fields = [(f"{pid}/task/{tid}", "SigPnd") for tid in task_ids(pid)] + [(str(pid), "ShdPnd")]
    masks = (status_field(where, field) for where, field in fields)
    return any(int(mask or "0", 16) >> (signal.SIGSTOP - 1) & 1 for mask in masks)


def same_process(process: ProcessId) -> bool:
    """Whether ``process`` still lives under its pid; without a start time, the pid alone is
    compared."""
    stat = read_stat(process.pid)
    if stat is None or stat.state in ("Z", "X"):
        return False
    return process.start in (0, stat.start)


def status_field(pid: int | str, field: str, proc: str = "/proc") -> str:
    """A field of ``/proc/<pid>/status``, or empty."""
    try:
        with open(f"{proc}/{pid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name == field:
                    return value.strip()
    except OSError:
        pass  # gone, or hidden from us: the caller treats both as unknown
    return ""


def tracer_of(pid: int) -> int:
    """The pid of the process's tracer; 0 if there is none or it is unknown."""
    value = status_field(pid, "TracerPid")
    return int(value) if value.isdigit() else 0


def uses_cuda(pid: int, proc: str = "/proc") -> bool | None:
    """Whether the process has an NVIDIA device open; None if we may not see its files.

    Its memory map would tell too, but reading that can hang with the process.
    """
    folder = f"{proc}/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue  # closed meanwhile
        if target.startswith(("/dev/nvidia", "/dev/dxg")):
            return True
    return False

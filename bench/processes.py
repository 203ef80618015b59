"""What processes cost, and how to have a measurement run in one of its own."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from typing import Any

import psutil


def pss_bytes(pid: int) -> int:
    """Proportional set size: memory shared by n processes counts 1/n for each."""
    return int(psutil.Process(pid).memory_full_info().pss)


def resident() -> float:
    """MiB that this process has now."""
    return float(psutil.Process().memory_info().rss) / 2**20


def most_resident() -> float:
    """MiB that this process took at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def own_cpu_seconds(pid: int) -> float:
    """User and system time of a process, without its children."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of its children that have ended."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def children(pid: int) -> list[int]:
    """The living children of a process, by pid."""
    return sorted(child.pid for child in psutil.Process(pid).children())


def command(pid: int) -> str:
    """The last word of a process's command line: a collector's name; empty if it has ended."""
    try:
        words = psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:  # it has ended
        words = []
    return next((word for word in reversed(words) if word), "")


def apart(measure: Callable[..., None], *given: Any, **named: Any) -> None:
    """Measure in a process of its own, whose memory is that of this measurement alone."""
    context = multiprocessing.get_context("spawn")
    run = context.Process(target=measure, args=given, kwargs=named)
    run.start()
    run.join()

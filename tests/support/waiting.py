"""Waiting for what happens in other processes, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PRESSURE = Path("/proc/pressure/cpu")
MOST_TIMES_AS_LONG = 3
"""However busy the machine is."""


def eventually(
    look: Callable[[], T | None], what: str, seconds: float = 30.0, every: float = 0.1
) -> T:
    """What ``look`` returns once it is true; fails after ``seconds`` in which no process of the
    machine waited for a CPU."""
    begun, stalled = time.monotonic(), stalled_seconds()
    while True:
        if found := look():
            return found
        waited = time.monotonic() - begun
        lost = stalled_seconds() - stalled
        if waited > min(seconds + lost, MOST_TIMES_AS_LONG * seconds):
            raise AssertionError(f"not within {waited:.0f} s ({lost:.0f} s on busy CPUs): {what}")
        time.sleep(every)


def stalled_seconds(pressure: Path = PRESSURE) -> float:
    """How long, since the machine started, some process waited for a CPU
    (``Documentation/accounting/psi.rst`` of Linux); 0 where the kernel does not count that."""
    try:
        some = pressure.read_text().splitlines()[0]
    except (OSError, IndexError):
        return 0.0
    return int(some.rpartition("total=")[2]) / 1e6

"""Processes that pile up in the kernel, all in one function, and what that function waits for."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.anomaly import Anomaly
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.series import Bools
from ray_sentinel.evidence.stacks.frames import meanings as m
from ray_sentinel.evidence.stacks.frames.reading import match
from ray_sentinel.model.stacks import Frame
from ray_sentinel.model.thresholds import BLOCKED_PROCESSES

Awaited = Literal["driver", "storage", "network", "unknown"]
"""What a function of the kernel waits for."""
_AWAITED: dict[str, Awaited] = {
    m.DEVICE.activity: "driver",
    m.STORAGE.activity: "storage",
    m.NETWORK.activity: "network",
}


_OF: dict[Awaited, str] = {"storage": "storage", "network": "the network"}
LEAST = BLOCKED_PROCESSES.limit


class BlockedProcesses(Anomaly, frozen=True, kw_only=True):
    """Processes of one host that came to wait in one function (the unit) and did not leave it; the
    size is their number at the most, above the level at the start."""

    awaited: Awaited


def find(case: JobCase) -> tuple[BlockedProcesses, ...]:
    """Those that are still there at the end of the data, in order of time."""
    size = max(3, case.times.size // 10)
    return _piles(case, np.arange(case.times.size) >= case.times.size - size)


def during(case: JobCase, start: float, end: float) -> tuple[BlockedProcesses, ...]:
    """Those that are there for most of a stop of the job, in order of time."""
    return _piles(case, (case.times >= start) & (case.times <= end))


def _piles(case: JobCase, cells: Bools) -> tuple[BlockedProcesses, ...]:
    panel = case.view.panel("host.dstate")
    found = []
    for row, values in zip(panel.rows, panel.values, strict=True):
        counts = np.where(np.isnan(values), 0.0, values)
        rise = float(np.max(counts[cells], initial=0.0) - counts[0])
        if min(rise, float(np.median(counts[cells])) if cells.any() else 0.0) < LEAST:
            continue
        last = stats.last_index(cells & (counts > counts[0])) or 0
        below = stats.last_index(counts[:last] <= counts[0])
        text = f"{row.host}: {rise:.0f} processes piled up in D state"
        text += f" in {row.unit}" if row.unit else ""
        awaited = awaited_in(row.unit)
        text += f", waiting for {_OF[awaited]}" if awaited in _OF else ""
        first = 0 if below is None else below + 1
        found.append(
            BlockedProcesses.of_row(panel, row, "host.dstate", text, first, rise, awaited=awaited)
        )
    return tuple(sorted(found, key=lambda one: one.at))


def awaited_in(function: str) -> Awaited:
    """What a function of the kernel waits for.

    >>> awaited_in("rpc_wait_bit_killable"), awaited_in("nvidia_ioctl"), awaited_in("0")
    ('storage', 'driver', 'unknown')
    """
    row = match(Frame(function=function, file="kernel", native=True))
    return _AWAITED.get(row.meaning.activity, "unknown") if row is not None else "unknown"

"""How much of its memory each host uses: of the machine's, or of its container's limit."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import faults
from ray_sentinel.diagnose.panel import SeriesOwner, SeriesPanel
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.model.thresholds import CONTAINER_FULL, CONTAINER_PRESSURE


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """One host's memory in bytes (T,), against the limit that it came closest to."""

    row: SeriesOwner
    panel: SeriesPanel
    used: Floats
    limit: Floats
    container: bool = False
    scarce: bool = True
    """Being full means that memory runs short. False where a container's usage may be page cache:
    it is then healthy to be full."""

    @property
    def host(self) -> str:
        """The host's name."""
        return self.row.host


def find(case: JobCase) -> tuple[Usage, ...]:
    """One entry for each host whose memory is known, by host.

    If the container's kills were counted, it is the container's memory; otherwise the one closest
    to its limit among those that run short.
    """
    own = {one.host: one for one in _machines(case)}
    killed = _killed(case)
    for one in _containers(case):
        machine = own.get(one.host)
        if one.host in killed:
            own[one.host] = msgspec.structs.replace(one, scarce=True)
        elif machine is None or (one.scarce and _peak(one) > _peak(machine)):
            own[one.host] = one
    return tuple(own[host] for host in sorted(own))


def _peak(one: Usage) -> float:
    """The greatest share of the limit; 0 if the limit is not known."""
    return float(np.nanmax(np.nan_to_num(one.used / one.limit), initial=0.0))


def _machines(case: JobCase) -> list[Usage]:
    view = case.view
    total, available = view.panel("mem.total"), view.panel("mem.available")
    used = view.panel("mem.used")
    if not available.empty and not total.empty:
        limits = _aligned(total, available)
        return _rows(available, limits - available.values, limits)
    return _rows(used, used.values, _aligned(total, used))


def _containers(case: JobCase) -> list[Usage]:
    used = case.view.panel("mem.cgroup_used")
    found = _rows(used, used.values, _aligned(case.view.panel("mem.cgroup_limit"), used))
    return [
        msgspec.structs.replace(one, container=True, scarce=_pressed(case, one)) for one in found
    ]


def _rows(panel: SeriesPanel, used: Floats, limits: Floats) -> list[Usage]:
    return [
        Usage(row=row, panel=panel, used=mine, limit=limit)
        for row, mine, limit in zip(panel.rows, used, limits, strict=True)
    ]


def _aligned(limit: SeriesPanel, panel: SeriesPanel) -> Floats:
    """The limit of each row's host, NaN if it is not known."""
    known = {row.host: values for row, values in zip(limit.rows, limit.values, strict=True)}
    out = np.full(panel.values.shape, np.nan)
    for index, row in enumerate(panel.rows):
        if row.host in known:
            out[index] = stats.middle(known[row.host])
    return out


def _pressed(case: JobCase, one: Usage) -> bool:
    """Whether the host waited for memory while its memory was full."""
    waits = case.view.panel("mem.some").of(one.host)
    if waits.empty:
        return False
    tight = (stats.largest(waits.values, 0) > CONTAINER_PRESSURE.limit) & (
        one.used > CONTAINER_FULL.limit * one.limit
    )
    return bool(tight.sum() * case.cell >= CONTAINER_FULL.seconds)


def _killed(case: JobCase) -> set[str]:
    """Hosts whose container's own count of kills grew."""
    panel = case.view.panel("mem.cgroup_oom")
    grown = faults.growth(case, panel)
    return {row.host for row, rises in zip(panel.rows, grown, strict=True) if np.nansum(rises) >= 1}

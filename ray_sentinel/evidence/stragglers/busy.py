"""How long each rank was busy between two collectives, instead of waiting for the others.

A collective that needs every rank ends when the last rank has called it. From then to a rank's own
next call it is busy, and from its call to the last one's it waits. In a job with one straggler all
others wait, and the straggler does not: the wall time of a step is the same for all, the busy time
is not. If devices measured how long they were in a collective, the shortest stay is that of the
rank that came last, and what others stayed longer is their waiting time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from ray_sentinel.evidence.stragglers.arrivals import ArrivalTable, Floats


class Times(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Seconds for each interval between two collectives and each rank, in the table's order."""

    busy: Floats
    """Seconds of work, intervals × ranks. Single values may be negative where devices were timed;
    their sums are right."""
    waits: Floats
    """Seconds spent in the collective at the interval's end waiting for the last rank, intervals ×
    ranks."""
    wall: Floats
    """Length of each interval in seconds."""

    def saved_without(self, columns: list[int]) -> float:
        """Seconds by which the last arrivals would come earlier without these ranks."""
        rest = np.delete(self.waits, columns, axis=1)
        return float(rest.min(axis=1).sum()) if rest.shape[1] else 0.0


def times(
    table: ArrivalTable, others: Sequence[ArrivalTable], offsets: Mapping[int, float]
) -> Times:
    """Busy and waiting times, from one group's collectives.

    The time that a rank waited in ``others`` (its tensor or data parallel group) does not count as
    its work either: a rank that waits there for a slow peer is late here, like the peer.
    ``offsets`` are seconds to add to each rank's clock.
    """
    created = _on_one_clock(table, offsets)
    release = created.max(axis=1)
    wall = np.maximum(np.diff(release), 0.0)
    elsewhere = _waits_elsewhere(table, created, others, offsets)
    if table.durations is None:
        # Calls that were made ahead, before the previous collective ended, caused no waiting.
        busy = np.maximum(created[1:] - release[:-1, None], 0.0)
        waits = release[1:, None] - np.maximum(created[1:], release[:-1, None])
        return Times(busy=busy - elsewhere, waits=np.maximum(waits, 0.0), wall=wall)
    waits = _device_waits(table.durations)[1:]
    return Times(busy=wall[:, None] - waits - elsewhere, waits=waits, wall=wall)


def _on_one_clock(table: ArrivalTable, offsets: Mapping[int, float]) -> Floats:
    shifts: Floats = np.array([offsets.get(rank, 0.0) for rank in table.ranks])
    return np.asarray(table.created + shifts)


def _device_waits(durations: Floats) -> Floats:
    shortest: Floats = durations.min(axis=1, keepdims=True)
    return np.subtract(durations, shortest)


def _waits_elsewhere(
    table: ArrivalTable,
    created: Floats,
    others: Sequence[ArrivalTable],
    offsets: Mapping[int, float],
) -> Floats:
    """Seconds in the other groups' collectives, for their last ranks: intervals × ranks."""
    calls = [(other, _on_one_clock(other, offsets)) for other in others]
    found = np.zeros((len(created) - 1, len(table.ranks)))
    for column, rank in enumerate(table.ranks):
        mine = [(other, at, other.ranks.index(rank)) for other, at in calls if rank in other.ranks]
        if not mine:
            continue
        every = np.sort(np.concatenate([created[:, column], *(at[:, own] for _, at, own in mine)]))
        for other, at, own in mine:
            begun = at[:, own]
            if other.durations is not None:
                waits = _device_waits(other.durations)[:, own]
            else:
                # A rank that goes on to another call before the last rank has come has not waited.
                after = np.append(every, np.inf)[np.searchsorted(every, begun, side="right")]
                waits = np.maximum(np.minimum(at.max(axis=1), after) - begun, 0.0)
            interval = np.searchsorted(created[:, column], begun) - 1
            inside = (interval >= 0) & (interval < len(found))
            np.add.at(found[:, column], interval[inside], waits[inside])
    return found


def blocks(values: Floats, count: int) -> Floats:
    """Sums over ``count`` runs of intervals of about equal length; × ranks."""
    parts = np.array_split(values, min(count, len(values)))
    return np.array([part.sum(axis=0) for part in parts])

"""How long each rank was busy between two collectives, instead of waiting for the others.

A collective that needs everyone lets go when the last rank has called it. So from there to a rank's
own next call it is busy, and from its call to the last one's it waits. In a job of one straggler
all others wait, and its own waiting is nil: the wall time of a step is the same for all, the busy
time is not. Where devices measured how long they were in a collective, the shortest stay is that of
the rank that came last, and what others stayed longer is their waiting.
"""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.evidence.stragglers.arrivals import Floats, Table


class Times(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Seconds by interval between two collectives; of each rank, in the table's order."""

    busy: Floats
    """Intervals × ranks. Single ones may be negative where devices were timed; sums count."""
    waits: Floats
    """Intervals × ranks: in the collective at the interval's end, for the last rank."""
    wall: Floats
    """Intervals."""

    def latest(self, count: int) -> Times:
        """Of the last ``count`` intervals."""
        return Times(busy=self.busy[-count:], waits=self.waits[-count:], wall=self.wall[-count:])

    def saved_without(self, columns: list[int]) -> float:
        """Seconds by which the last arrivals would come earlier without these ranks."""
        rest = np.delete(self.waits, columns, axis=1)
        return float(rest.min(axis=1).sum()) if rest.shape[1] else 0.0


def times(table: Table, offsets: Floats | None = None) -> Times:
    """Busy and waiting times. ``offsets`` are seconds to add to each rank's clock."""
    created = table.created if offsets is None else table.created + offsets
    release = created.max(axis=1)
    wall = np.maximum(np.diff(release), 0.0)
    if table.durations is None:
        # Calls made ahead, before the one before has let go, were not waited for.
        busy = np.maximum(created[1:] - release[:-1, None], 0.0)
        waits = release[1:, None] - np.maximum(created[1:], release[:-1, None])
        return Times(busy=busy, waits=np.maximum(waits, 0.0), wall=wall)
    waits = (table.durations - table.durations.min(axis=1, keepdims=True))[1:]
    return Times(busy=wall[:, None] - waits, waits=waits, wall=wall)


def blocks(values: Floats, count: int) -> Floats:
    """Sums over ``count`` runs of intervals of about equal length; × ranks."""
    parts = np.array_split(values, min(count, len(values)))
    return np.array([part.sum(axis=0) for part in parts])

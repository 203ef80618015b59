"""Whether the waits in the dumps are too young to tell a hang from a running job.

A dump contains when each call was made (``time_created_ns``), but not when it was itself written;
that is its file's time. In a running job, a rank waits for the slowest of its peers, and hardly
longer than from one such call to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from statistics import median

from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.waits import Key, Waits
from ray_sentinel.evidence.flight_recorder.world import World

_INSTANT = 1.0
"""Seconds up to which every wait is too young: nobody decides so soon that a job hangs, and writing
the dumps takes a part of them."""
_LONGEST = 60.0
"""Seconds from which no wait is too young, however seldom the call is made."""
_FEWEST = 3
"""Least number of intervals between equal calls that show a habit."""
_CLOCK = 0.1
"""Seconds by which a file's time may precede the call: the kernel stamps files by a coarse
clock."""


def why_too_young(world: World, waits: Waits, written: Mapping[int, float]) -> str:
    """Why no wait in the dumps is a hang yet, as a sentence; empty if one may be, or if the age of
    one is unknown. ``written`` is when each rank's dump was written, in Unix seconds."""
    longest, told = 0.0, ""
    for rank, keys in waits.fronts.items():
        if not keys:
            continue
        entry = _own(world, waits, rank, keys[0])
        if entry is None or entry.created_ns is None or rank not in written:
            return ""
        age = written[rank] - entry.created_ns / 1e9
        if not -_CLOCK <= age < _LONGEST:
            return ""
        usual = _INSTANT if age < _INSTANT else _interval(world, rank, entry)
        if age >= max(_INSTANT, usual):
            return ""
        if age >= longest:
            habit = f", which it makes every {usual:.1f} s" if usual > _INSTANT else ""
            longest, told = age, f"rank {rank}, in {entry.title}{habit}"
    if not told:
        return ""
    return (
        f"the longest wait was {longest:.1f} s old when the dumps were written ({told}): the job "
        "may as well have been running; dump again, and give both sets with --earlier"
    )


def _own(world: World, waits: Waits, rank: int, key: Key) -> Entry | None:
    """The rank's own record of the operation that it is held in."""
    kind, group, number, _ = key
    return waits.operations[key].entry if kind == "p2p" else world.entry(rank, group, number)


def _interval(world: World, rank: int, entry: Entry) -> float:
    """The usual seconds from one such call of the rank's to the next; 0 if there is no usual
    interval."""
    same = [
        other.created_ns / 1e9
        for other in world.history(rank)
        if other.created_ns is not None
        and (other.pg, other.peer, other.signature()) == (entry.pg, entry.peer, entry.signature())
    ]
    gaps = [later - earlier for earlier, later in pairwise(same)]
    return median(gaps) if len(gaps) >= _FEWEST else 0.0

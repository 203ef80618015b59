"""Whether the dumps show a job that hangs, or one that moves.

They may be of different moments, or of one in which no wait is older than in a running job. A dump
contains when each call was made (``time_created_ns``), but not when it was itself written; that is
its file's time. In a running job, a rank waits for the slowest of its peers, and hardly longer than
from one such call to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import median

from ray_sentinel.evidence.flight_recorder.dump import RankDump
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.waits import Waits
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.evidence.movement import compared

_INSTANT = 1.0
"""Seconds up to which every wait is too young: nobody decides so soon that a job hangs, and writing
the dumps takes a part of them."""
_LONGEST = 60.0
"""Seconds from which no wait is too young, however seldom the call is made."""
_FEWEST = 3
"""Least number of intervals between equal calls that show a habit."""
_TIMEOUT = 600.0
"""Seconds after which PyTorch ends a wait in NCCL unless it is told otherwise."""
_CLOCK = 0.1
"""Seconds by which a file's time may precede the call: the kernel stamps files by a coarse
clock."""


def moved_since(before: Mapping[int, RankDump], now: Mapping[int, RankDump]) -> list[int]:
    """The ranks whose dumps differ in what was issued or completed."""
    both = sorted(before.keys() & now.keys())
    return [rank for rank in both if compared((_mark(before[rank]), _mark(now[rank]))) == "moved"]


def _mark(dump: RankDump) -> tuple[object, ...]:
    last = {key: entry.record for key, entry in dump.last_done.items()}
    return dump.status, [entry.record for entry in dump.pending], last


def moving(world: World) -> str:
    """Proof that the job moved while it was dumped, as a sentence; empty if there is none.

    Nobody completes an operation that needs everyone before everyone has enqueued it: where one
    rank completed what another had not yet enqueued, the dumps are of different moments.
    """
    for rank, dump in world.dumps.items():
        for entry in dump.last_done.values():
            if entry.p2p or not entry.needs_everyone or (entry.retired and not entry.done):
                continue
            group = world.group_of(rank, entry)
            if group is None:
                continue
            late = world.members(group.id, entry.seq)["absent"]
            if late:
                return (
                    f"rank {rank} has completed {world.title(rank, entry)}, which rank {late[0]} "
                    "had not yet enqueued"
                )
    return ""


def left_over(dumps: Mapping[int, RankDump]) -> dict[int, float]:
    """Ranks whose dump an earlier run has left → seconds by which its last call precedes the
    others'.

    For dumps that contradict each other. A job that is started again in the same folder replaces
    only the files of ranks that dump again. Within one run, a rank makes or waits for a call at
    least once in a time-out. The second latest dump is compared with: one clock may be wrong.
    """
    last = {rank: made for rank, dump in dumps.items() if (made := _last_call(dump)) is not None}
    if len(last) < 3:
        return {}
    now = sorted(created for created, _ in last.values())[-2]
    ages = {rank: now - created for rank, (created, _) in last.items()}
    return {rank: age for rank, age in ages.items() if age > _TIMEOUT}


def _last_call(dump: RankDump) -> tuple[float, Entry] | None:
    """The rank's latest call, after its time in Unix seconds; None if that is not known."""
    known = [(e.created_ns / 1e9, e) for e in dump.kept if e.created_ns is not None]
    return max(known, key=lambda one: one[0], default=None)


def dumped_too_soon(
    world: World, ranks: Iterable[int], written: Mapping[int, float]
) -> dict[int, str]:
    """Of ``ranks``, those that were making calls as usual when their dumps were written, and whose
    peers' dumps are later: they may have gone on since → the reason, as a sentence.
    """
    found: dict[int, str] = {}
    latest = max(written.values(), default=0.0)
    for rank in ranks:
        last = _last_call(world.dumps[rank]) if rank in world.dumps and rank in written else None
        if last is None:
            continue
        created, entry = last
        age, before = written[rank] - created, latest - written[rank]
        if not -_CLOCK <= age < _LONGEST or before < _INSTANT:
            continue
        usual = _INSTANT if age < _INSTANT else _interval(world, rank, entry)
        if age < max(_INSTANT, usual) < before:
            found[rank] = (
                f"rank {rank}'s dump was written {before:.0f} s before the last one, "
                f"{max(age, 0.0):.1f} s after a call of its own: it may have gone on since"
            )
    return found


def why_too_young(waits: Waits, written: Mapping[int, float]) -> str:
    """Why no wait in the dumps is a hang yet, as a sentence; empty if one may be, or if the age of
    one is unknown. ``written`` is when each rank's dump was written, in Unix seconds."""
    longest, told = 0.0, ""
    for rank, held in waits.fronts.items():
        if not held:
            continue
        entry = waits.call(rank, held[0])
        if entry is None or entry.created_ns is None or rank not in written:
            return ""
        age = written[rank] - entry.created_ns / 1e9
        if not -_CLOCK <= age < _LONGEST:
            return ""
        usual = _INSTANT if age < _INSTANT else _interval(waits.world, rank, entry)
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

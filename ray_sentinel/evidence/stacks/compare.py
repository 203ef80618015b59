"""Compares two looks at the same processes: what moved is slow, what stood still may be stuck."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ray_sentinel.evidence.movement import Movement, compared
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import ChildWork, StackFact, Tool


def movements(rounds: Sequence[Iterable[StackFact]]) -> dict[ProcessId, Movement]:
    """How each process moved over the rounds, oldest first.

    Only looks with the same kind of tool are compared: native frames are in one and not in the
    other.
    """
    seen: dict[ProcessId, list[StackFact]] = {}
    for facts in rounds:
        for fact in facts:
            seen.setdefault(fact.process, []).append(fact)
    return {process: movement(looks) for process, looks in seen.items()}


def woken(rounds: Sequence[Iterable[StackFact]]) -> frozenset[ProcessId]:
    """The processes whose informative thread, where it is not the main one, was put on a CPU
    between two looks and does more than check whether what it waits for has come; and those that
    wait for processes of their own, one of which has worked between two looks."""
    seen: dict[tuple[ProcessId, int], set[int]] = {}
    last: dict[ProcessId, StackFact] = {}
    found: set[ProcessId] = set()
    for fact in (fact for facts in rounds for fact in facts):
        before, last[fact.process] = last.get(fact.process), fact
        main = fact.tid is None or fact.tid == fact.process.pid
        idle = fact.activity in _LOOKS_AGAIN or (before is not None and only_looked(before, fact))
        if not main and fact.switches is not None and not idle:
            seen.setdefault((fact.process, fact.tid or 0), set()).add(fact.switches)
        if before is not None and children_worked(before.children, fact.children):
            found.add(fact.process)
    return frozenset(found | {process for (process, _), counts in seen.items() if len(counts) > 1})


def children_worked(before: ChildWork | None, after: ChildWork | None) -> bool:
    """Whether any process below one has worked between two looks at it, or others are there."""
    if before is None or after is None:
        return False
    least = WORKS * (after.at - before.at)
    ran = [seconds - before.ran[pid] for pid, seconds in after.ran.items() if pid in before.ran]
    return max(ran, default=math.inf) > least


def only_looked(before: StackFact, after: StackFact, wait: float = 0.0) -> bool:
    """Whether a process waits for its own, each time up to a deadline that the kernel knows, and
    between two looks at it neither did any of these work, nor did it itself more than wake to see
    whether anything has come. ``wait``: the same as in ``deadlines_between``. Of coroutines it is
    not known whether they await any."""
    if before.signature != after.signature or before.tid != after.tid:
        return False
    if before.ran is None or after.ran is None or after.activity == "idle":
        return False
    if before.children is None or after.children is None or after.children.ages:
        return False
    news = after.children.ran.keys() - before.children.ran.keys()
    worked = after.ran - before.ran > WORKS * (after.children.at - before.children.at)
    if news or worked or children_worked(before.children, after.children):
        return False
    return deadlines_between(before, after, wait) is not None


def deadlines_between(first: StackFact, last: StackFact, wait: float = 0.0) -> float | None:
    """How many deadlines of a thread's waits came between two looks at a process that waits for its
    own, if it was put on a CPU no more often than these explain; None if it was, so that what it
    waits for has woken it, or if nothing is known of them. ``wait``: seconds for which one of its
    waits lasts at least, 0 if that is not known."""
    wait = max(wait, wait_seconds(first), wait_seconds(last))
    if first.children is None or last.children is None or wait <= 0.0:
        return None
    if first.switches is None or last.switches is None:
        return None
    deadlines = (last.children.at - first.children.at) / wait
    return deadlines if last.switches - first.switches <= 1.0 + SWITCHES * deadlines else None


def wait_seconds(fact: StackFact) -> float:
    """Seconds from a look to the deadline of the wait that it shows; 0 if none is known."""
    if fact.wakes_at is None or fact.children is None:
        return 0.0
    return max(0.0, fact.wakes_at - fact.children.at)


def awaiting_programs(facts: Iterable[StackFact], oldest: float) -> tuple[StackFact, ...]:
    """The facts with only those processes below that may be awaited: where that is not known, those
    that were started at most ``oldest`` seconds ago."""
    return tuple(_awaiting_programs(fact, oldest) for fact in facts)


def _awaiting_programs(fact: StackFact, oldest: float) -> StackFact:
    work = fact.children
    if work is None or not work.ages:
        return fact
    ran = {
        pid: seconds for pid, seconds in work.ran.items() if work.ages.get(pid, math.inf) <= oldest
    }
    children = msgspec.structs.replace(work, ran=ran) if ran else None
    return msgspec.structs.replace(fact, children=children)


WORKS = 0.01
"""A process works that runs, or waits for a CPU, for such a share of the time: what waits, and only
looks now and then whether something has come, runs for less, though it may wait for a CPU each
time."""
SWITCHES = 1.5
"""How often a thread is put on a CPU for each of its deadlines at most: others may take the CPU
away meanwhile."""
_LOOKS_AGAIN = ("idle", "lock-wait")
"""Activities that end at a deadline and begin again: a thread waits like that for a lock, a queue
or an event."""


def movement(looks: Sequence[StackFact]) -> Movement:
    """How one process moved over its looks, oldest first."""
    by_kind: dict[str, list[_Place]] = {}
    for fact in looks:
        if fact.signature:
            place = fact.signature, fact.thread, fact.operation
            by_kind.setdefault(_kind(fact), []).append(place)
    found = (compared(places, _in_place) for places in by_kind.values())
    return min(found, key=_WEIGHT.__getitem__, default="unknown")


_WEIGHT: Mapping[Movement, int] = {"moved": 0, "in-place": 1, "stuck": 2, "unknown": 3}


_Place = tuple[tuple[str, ...], str, str]
"""Signature, thread and operation."""
PYTHON_ONLY: frozenset[Tool] = frozenset(("py-spy", "companion", "faulthandler"))
"""Tools that show no native frames."""


def _kind(fact: StackFact) -> str:
    if fact.tool in PYTHON_ONLY:
        return "python"
    return "native" if fact.tool in ("gdb", "cuda-gdb") else fact.tool


def _in_place(one: _Place, other: _Place) -> bool:
    """Whether all but the innermost common function is unchanged, lines included."""
    (mine, thread, _), (others, same_thread, _) = one, other
    common = shared_depth(mine, others)
    rest = mine[common:], others[common:]
    # One call deeper or shallower, or another line of the innermost function.
    if thread != same_thread or max(map(len, rest)) > 2:
        return False
    return not all(rest) or function_of(rest[0][0]) == function_of(rest[1][0])


def shared_depth(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many places two stacks have in common, from the outermost on."""
    both = zip(one, other, strict=False)
    least = min(len(one), len(other))
    return next((depth for depth, (here, there) in enumerate(both) if here != there), least)


def function_of(place: str) -> str:
    """A place without its line: ``step (train.py:7)`` → ``step (train.py``. A C++ name that comes
    without a line (``c10d::Work::wait``) stays whole."""
    head, colon, tail = place.rpartition(":")
    return head if colon and tail.rstrip(")").isdigit() else place

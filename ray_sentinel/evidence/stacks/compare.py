"""Compares two looks at the same processes: what moved is slow, what stood still may be stuck."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact, Tool

Movement = Literal["stuck", "in-place", "moved", "unknown"]
"""How far a process moved between the looks. ``stuck``: it was at the same place in every look.
``in-place``: only the innermost function's line, or what it calls, changed, as in a loop that never
ends. ``moved``: it went elsewhere. ``unknown``: it was seen only once."""


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
    between two looks and does more than check whether what it waits for has come."""
    seen: dict[tuple[ProcessId, int], set[int]] = {}
    for facts in rounds:
        for fact in facts:
            main = fact.tid is None or fact.tid == fact.process.pid
            if not main and fact.switches is not None and fact.activity not in _LOOKS_AGAIN:
                seen.setdefault((fact.process, fact.tid or 0), set()).add(fact.switches)
    return frozenset(process for (process, _), counts in seen.items() if len(counts) > 1)


_LOOKS_AGAIN = ("idle", "lock-wait")
"""Activities that end at a deadline and begin again: a thread waits like that for a lock, a queue
or an event."""


def movement(looks: Sequence[StackFact]) -> Movement:
    """How one process moved over its looks, oldest first."""
    by_kind: dict[str, list[StackFact]] = {}
    for fact in looks:
        if fact.signature:
            by_kind.setdefault(_kind(fact), []).append(fact)
    verdicts = [_of_one_kind(facts) for facts in by_kind.values() if len(facts) > 1]
    return min(verdicts, key=_WEIGHT.__getitem__, default="unknown")


_WEIGHT: Mapping[Movement, int] = {"moved": 0, "in-place": 1, "stuck": 2, "unknown": 3}


PYTHON_ONLY: frozenset[Tool] = frozenset(("py-spy", "companion", "faulthandler"))
"""Tools that show no native frames."""


def _kind(fact: StackFact) -> str:
    if fact.tool in PYTHON_ONLY:
        return "python"
    return "native" if fact.tool in ("gdb", "cuda-gdb") else fact.tool


def _of_one_kind(facts: Sequence[StackFact]) -> Movement:
    first = facts[0]
    if all(fact.signature == first.signature and _same(fact, first) for fact in facts):
        return "stuck"
    if all(_in_place(fact, first) for fact in facts):
        return "in-place"
    return "moved"


def _same(one: StackFact, other: StackFact) -> bool:
    return one.thread == other.thread and one.operation == other.operation


def _in_place(one: StackFact, other: StackFact) -> bool:
    """Whether all but the innermost common function is unchanged, lines included."""
    if one.thread != other.thread:
        return False
    common = 0
    for left, right in zip(one.signature, other.signature, strict=False):
        if left != right:
            break
        common += 1
    deepest = max(len(one.signature), len(other.signature))
    # One call deeper or shallower, or another line of the innermost function.
    if deepest - common > 2:
        return False
    rest_one, rest_other = one.signature[common:], other.signature[common:]
    if rest_one and rest_other:
        return function_of(rest_one[0]) == function_of(rest_other[0])
    return True


def function_of(place: str) -> str:
    """A place without its line: ``step (train.py:7)`` → ``step (train.py``. A C++ name that comes
    without a line (``c10d::Work::wait``) stays whole."""
    head, colon, tail = place.rpartition(":")
    return head if colon and tail.rstrip(")").isdigit() else place

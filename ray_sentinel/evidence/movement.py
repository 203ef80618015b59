"""Whether something moved between looks at it, and whether what was seen has lasted long enough.

Each source marks where something is in its own way: stacks by places in the code, recorders by the
calls that were made, NCCL RAS by counts of them. What that says of movement is the same for all.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

Mark = TypeVar("Mark")

Movement = Literal["stuck", "in-place", "moved", "unknown"]
"""How far something moved between the looks. ``stuck``: it was at the same place in every look.
``in-place``: only the innermost function's line, or what it calls, changed, as in a loop that never
ends. ``moved``: it went elsewhere. ``unknown``: it was seen only once."""
STILL: tuple[Movement, ...] = ("stuck", "in-place")


def compared(
    marks: Sequence[Mark], in_place: Callable[[Mark, Mark], bool] | None = None
) -> Movement:
    """How something moved, by the marks of its looks. ``in_place``: whether of two different marks
    one may be the other's after another round of the same loop."""
    if len(marks) < 2:
        return "unknown"
    if all(mark == marks[0] for mark in marks):
        return "stuck"
    if in_place is not None and all(in_place(mark, marks[0]) for mark in marks):
        return "in-place"
    return "moved"


def settled(movement: Movement, *, may_loop: bool) -> Movement:
    """The same without doubt about ``in-place``, unless it may be a loop that never ends."""
    return "moved" if movement == "in-place" and not may_loop else movement


def last_before(times: Sequence[float], seconds: float) -> int | None:
    """The index of the last look that is at least ``seconds`` before the newest: looks that are
    closer are of one moment, and their agreement means nothing. None if there is none. ``times``
    are sorted."""
    found = bisect_right(times, times[-1] - seconds) if times else 0
    return found - 1 if found else None


def too_young(looks: int | None, age: float = 0.0, usual: float = math.inf) -> bool:
    """Whether what was seen may be over in a moment: it was seen once and is no proof by itself,
    and has not yet lasted for longer than is usual.

    ``looks``: how often it was seen, looks apart; None if once is proof. ``age`` and ``usual`` have
    one unit, in most cases seconds.
    """
    return looks == 1 and age < usual

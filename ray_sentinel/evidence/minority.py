"""How many of a set of equals can be the exception: one bound for each kind of evidence.

If the odd ones were compared one by one with the others (counts, calls, times), they are the
exception up to a quarter, as in NCCL's RAS. If it is only known that they stand apart, or are a
step behind, up to a third. Fewer than half have a visible fault of their own (an error, a state);
half or more suggest a cause that all share. Bounds with another meaning stay where they are. What
is usual among the equals of one is the median of the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

Vote = TypeVar("Vote", bound=Hashable)


def excepted(classes: Iterable[int], size: int, most: int) -> bool:
    """Whether the odd ones are few enough to be the exception among ``size`` equals: no more than
    ``most`` together, and no class of alike ones, of which ``classes`` has the sizes, is half of
    them."""
    counts = tuple(classes)
    few = (count <= under_half(size) or (count, size) == (1, 2) for count in counts)
    return sum(counts) <= most and all(few)


def most_odd(size: int) -> int:
    """The largest number of ``size`` equals that can be the exception; at least one."""
    return max(1, size // 4)


def third(size: int) -> int:
    """The largest number of ``size`` equals that is no more than a third of them."""
    return size // 3


def half(size: int) -> int:
    """The largest number of ``size`` equals that is no more than half of them."""
    return size // 2


def under_half(size: int) -> int:
    """The largest number of ``size`` equals that is less than half of them."""
    return (size - 1) // 2


def usual(votes: Iterable[Vote]) -> Vote | None:
    """The value of more than half of the votes; None if there is none.

    >>> usual("aab"), usual("ab")
    ('a', None)
    """
    counted = Counter(votes)
    for value, count in counted.most_common(1):
        if count > half(counted.total()):
            return value
    return None


def median_of_others(ordered: Sequence[float], value: float) -> float:
    """The median of ascending numbers, two at least, without ``value``, which is one of them."""
    place, others = bisect_left(ordered, value), len(ordered) - 1

    def other(number: int) -> float:
        return ordered[number + (number >= place)]

    return (other((others - 1) // 2) + other(others // 2)) / 2

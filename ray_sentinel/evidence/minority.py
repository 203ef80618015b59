"""How many of so many are the exception: one line for what one witness shows of equals.

Where the odd ones have been compared one by one with the others (counts, calls, times), they are
the exception up to a quarter, as NCCL's RAS draws it too. Where it is known only that they stand
apart, or are a step behind, up to a third. Other bounds mean other things and stay where they are:
fewer than half have a fault of their own in sight (an error, a state), or look unlike the rest by
the tables of frames, and half or more speak for a cause that all share.
"""

from __future__ import annotations


def most_odd(size: int) -> int:
    """The largest number of ``size`` equals that can be the exception; one always can."""
    return max(1, size // 4)


def at_most_a_third(count: int, size: int) -> bool:
    """Whether ``count`` of ``size`` are few enough to stand apart."""
    return 3 * count <= size

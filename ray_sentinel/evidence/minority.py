"""How many of a set of equals can be the exception: one bound for each kind of evidence.

If the odd ones were compared one by one with the others (counts, calls, times), they are the
exception up to a quarter, as in NCCL's RAS. If it is only known that they stand apart, or are a
step behind, up to a third. Fewer than half have a visible fault of their own (an error, a state);
half or more suggest a cause that all share. Bounds with another meaning stay where they are.
"""

from __future__ import annotations


def most_odd(size: int) -> int:
    """The largest number of ``size`` equals that can be the exception; at least one."""
    return max(1, size // 4)


def at_most_a_third(count: int, size: int) -> bool:
    """Whether ``count`` out of ``size`` are few enough to be the exception."""
    return 3 * count <= size


def fewer_than_half(count: int, size: int) -> bool:
    """Whether ``count`` are fewer than half of ``size`` equals; one of two counts too."""
    return 2 * count < size or (count, size) == (1, 2)

"""How ranks are named in sentences."""

from __future__ import annotations

from collections.abc import Iterable


def name_ranks(numbers: Iterable[int]) -> str:
    """Ranks for people: ``rank 3``, ``ranks 0-2, 5``."""
    found = sorted(set(numbers))
    return f"rank{'s' if len(found) > 1 else ''} {ranges(found)}"


def ranges(numbers: Iterable[int]) -> str:
    """Sorted numbers as ranges.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    return ", ".join(runs(numbers))


def runs(numbers: Iterable[int]) -> list[str]:
    """Sorted numbers, each run of neighbours as one text: ``["0-2", "5", "7-8"]``."""
    parts: list[str] = []
    start = previous = None
    for number in (*numbers, None):
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return parts

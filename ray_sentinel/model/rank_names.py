"""How ranks are named in sentences."""

from __future__ import annotations

from collections.abc import Iterable

MOST_RUNS = 64
"""Most runs of ranks in one sentence: every other one of thousands may be meant."""


def name_ranks(numbers: Iterable[int]) -> str:
    """Ranks for people: ``rank 3``, ``ranks 0-2, 5``; a long list is cut."""
    found = sorted(set(numbers))
    texts = runs(found)
    more = [f"... {len(found)} in all"] if len(texts) > MOST_RUNS else []
    return f"rank{'s' if len(found) > 1 else ''} {', '.join(texts[:MOST_RUNS] + more)}"


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

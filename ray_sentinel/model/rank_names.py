"""How ranks are named in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def name_ranks(numbers: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0-2, 5``."""
    found = sorted(set(numbers))
    return f"rank{'s' if len(found) > 1 else ''} {ranges(found)}"


def ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers in short.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    parts: list[str] = []
    start = previous = None
    for number in (*numbers, None):
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return ", ".join(parts)

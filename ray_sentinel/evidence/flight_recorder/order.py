"""The order in which groups were created, as far as their names show it."""

from __future__ import annotations


def creation_order(name: str) -> tuple[int, int, str]:
    """Sort key: names that are counters in numerical order, then names that are hashes."""
    return (0, int(name), "") if name.isdecimal() and len(name) < 18 else (1, 0, name)

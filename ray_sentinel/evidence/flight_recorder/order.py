"""The order in which groups were made, as far as their names tell."""

from __future__ import annotations


def creation_order(name: str) -> tuple[int, int, str]:
    """Sort key: names that are counters in their order, names that are hashes after them."""
    return (0, int(name), "") if name.isdecimal() and len(name) < 18 else (1, 0, name)

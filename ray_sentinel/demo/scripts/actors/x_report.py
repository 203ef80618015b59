"""What the job says of itself: nothing."""

from __future__ import annotations


def told(rank: int | None = None, size: int | None = None) -> None:
    """Nobody is told that there is such a process."""


def report(step: int) -> None:
    """Nobody is told."""

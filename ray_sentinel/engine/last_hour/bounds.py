"""What is remembered of the last hour of all jobs together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class KeptOfJob(Protocol):
    """What is remembered of one job."""

    @property
    def size(self) -> int:
        """How much that is."""
        ...

    def clear(self) -> None:
        """Forget all of it."""
        ...


def bound(kept_of_jobs: Iterable[tuple[float | None, float, KeptOfJob]], most: int) -> None:
    """Clears what is too much together; each comes with when its job ended, None while it runs, and
    when it last moved. The job that ended first goes first; of those that run, the one that stood
    still for longest."""
    kept = [(size, one) for one in kept_of_jobs if (size := one[2].size)]
    total = sum(size for size, _ in kept)
    if total <= most:
        return
    kept.sort(key=lambda pair: (pair[1][0] is None, pair[1][0] or 0.0, pair[1][1]))
    for size, (_, _, one) in kept:
        if total <= most:
            return
        one.clear()
        total -= size

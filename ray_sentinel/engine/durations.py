"""Learned durations of steps, or of a job's pauses where no steps are counted."""

from __future__ import annotations

from bisect import bisect_left, insort

import msgspec

MEMORY = 512
"""How many of the most recent durations are remembered."""


class DurationStats(msgspec.Struct, dict=True):
    """The most recent durations of one kind, in seconds, and the timeout that they justify.

    A single long one (the first checkpoint) proves nothing; a second one is a habit. So the usual
    is the 95th percentile, and also the second longest of all that are kept.
    """

    recent: list[float] = []
    """The remembered durations, newest last."""

    def __post_init__(self) -> None:
        self._sorted = sorted(self.recent)

    def __len__(self) -> int:
        return len(self.recent)

    def add(self, seconds: float) -> None:
        """Remember one duration; the oldest of more than 512 is forgotten."""
        if len(self.recent) == MEMORY:
            del self._sorted[bisect_left(self._sorted, self.recent.pop(0))]
        self.recent.append(seconds)
        insort(self._sorted, seconds)

    def replace_last(self, seconds: float) -> None:
        """Correct the duration that was added last to ``seconds``."""
        del self._sorted[bisect_left(self._sorted, self.recent[-1])]
        self.recent[-1] = seconds
        insort(self._sorted, seconds)

    def quantile(self, share: float) -> float | None:
        """The duration that a ``share`` (0..1) of the kept ones do not exceed."""
        if not self._sorted:
            return None
        return self._sorted[min(len(self._sorted) - 1, int(share * len(self._sorted)))]

    @property
    def usual(self) -> float | None:
        """The median."""
        return self.quantile(0.5)

    def timeout(self, least: float, factor: float) -> float:
        """How long to wait before silence counts: ``least`` seconds, or ``factor`` times the
        slowest usual duration, or half as much again as what was seen twice."""
        slow = self.quantile(0.95) or 0.0
        habit = self._sorted[-2] if len(self._sorted) >= 2 else 0.0
        return max(least, factor * slow, 1.5 * habit)

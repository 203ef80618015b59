"""How long the calls of a method take, and how long a process stands still in it.

An actor job counts no steps. Instead we learn how long a process stands still in each method: a
rollout whose main thread waits a minute for its engine in every call may do so; one that never
stood still for longer than a second may not. A method that has ended a few times is judged by its
usual durations; any other is only looked at, and judged by hard evidence alone.
"""

from __future__ import annotations

import msgspec

from ray_sentinel.engine.durations import DurationStats
from ray_sentinel.model.ray_calls import EndedCalls

LEAST_TIMEOUT = 15.0
"""Seconds in which nothing is suspected, whatever is usual."""
FACTOR = 3.0
"""Multiple of the usual duration from which a call is suspicious."""
ROUND_FACTOR = 10.0
"""The same multiple for a process that computes without sleeping."""
RHYTHM = 3
"""How many calls must have ended for the usual duration of a method to count as known."""


class KnownMethod(msgspec.Struct, kw_only=True):
    """What is known about one method of a class, or about one task."""

    ended: int = 0
    lasted: DurationStats = msgspec.field(default_factory=DurationStats)
    """Seconds from the appearance of its title to its disappearance; several calls count as one if
    they follow at once."""
    stood: DurationStats = msgspec.field(default_factory=DurationStats)
    """Seconds for which a process stood still in it."""
    longest: float = 0.0
    """Seconds that its longest call took, according to Ray."""
    told: int = 0
    """How many calls these are, of which ``longest`` is the longest."""
    last_at: float = 0.0
    """When the last of these calls ended."""

    @property
    def timeout(self) -> float:
        """Seconds for which a process may stand still in it."""
        if self.lasted.recent:
            return self.stood.timeout(LEAST_TIMEOUT, FACTOR)
        return call_timeout(self.longest)

    @property
    def round_timeout(self) -> float:
        """Seconds for which a process may stay on a CPU in it without sleeping. Computing is
        progress, so only many times the longest known duration is suspicious."""
        return max(LEAST_TIMEOUT, ROUND_FACTOR * self.longest_call)

    @property
    def longest_call(self) -> float:
        """Seconds that its longest call took."""
        # A title may last for several calls.
        by_title = self.lasted.timeout(0.0, 1.0) if self.told < RHYTHM else 0.0
        return max(self.longest, by_title)

    def apply(self, told: EndedCalls) -> bool:
        """Apply Ray's statistics of its ended calls, the only source for calls too short to be
        seen. Returns whether any has ended since the last report."""
        self.ended = max(self.ended, told.count)
        self.longest = max(self.longest, told.longest)
        self.told = max(self.told, told.count)
        before, self.last_at = self.last_at, max(self.last_at, told.last_at)
        return self.last_at > before


def call_timeout(longest: float) -> float:
    """Seconds that a call may take where ``longest`` is what the longest took."""
    return max(LEAST_TIMEOUT, FACTOR * longest)


def method_of(title: str) -> str:
    """The name that all actors of a class share for a method: Ray puts an actor's name before its
    constructor.

    >>> method_of("left:Rollout.__init__"), method_of("Rollout.generate")
    ('Rollout.__init__', 'Rollout.generate')
    """
    return title.rpartition(":")[2] if title.endswith(".__init__") else title


def runs_anything(title: str) -> bool:
    """Whether a method runs whatever function it is given, which may be the loop of a compiled
    graph, in which an actor stays for as long as the graph exists.

    >>> runs_anything("Stage.__ray_call__"), runs_anything("Stage.apply")
    (True, False)
    """
    return title.endswith(".__ray_call__")

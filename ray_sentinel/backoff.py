"""How long to wait before trying again what failed: the one definition of it.

Written here rather than taken from tenacity, which calls a function in a loop of its own: ours are
state machines that are asked when the next attempt is due, and keep their count of failures on
disk. Starting again from ``first`` is that count going back to 0.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

_MOST_EXPONENT = 64
"""Highest exponent of the factor: far beyond any ``most``, and larger powers overflow a float."""


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Delays that grow by ``factor`` from ``first`` to ``most`` seconds."""

    first: float
    """Seconds to wait after one failure."""
    most: float
    factor: float = 2.0
    jitter: float = 0.0
    """Share of a delay that is drawn at random, up or down: many must not return at once."""

    def delay(self, failures: int, draw: Callable[[], float] = random.random) -> float:
        """Seconds to wait after ``failures`` failures in a row; ``draw`` gives 0 to 1.

        >>> [Backoff(first=2.0, most=10.0).delay(failures) for failures in (1, 2, 3, 4)]
        [2.0, 4.0, 8.0, 10.0]
        """
        grown = self.first * self.factor ** min(max(failures - 1, 0), _MOST_EXPONENT)
        spread = 1.0 + self.jitter * (2.0 * draw() - 1.0) if self.jitter else 1.0
        return min(grown * spread, self.most)

    def delays(self, count: int) -> tuple[float, ...]:
        """The waits between ``count`` + 1 attempts."""
        return tuple(self.delay(failures) for failures in range(1, count + 1))

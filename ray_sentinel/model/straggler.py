"""Who slows a job down that goes on."""

from __future__ import annotations

from typing import Literal

import msgspec

StragglerKind = Literal["slow-rank", "slow-node", "imbalance", "even", "cannot-tell"]
"""``imbalance``: ranks differ, and too many are slow to be the exception. ``even``: nobody is."""


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's time that it did not wait for others, over the window."""

    rank: int
    host: str = ""
    share: float
    """Of the wall time, 0..1."""
    ratio: float
    """Against the median of the others; 1.3 is 30 % more work or less speed."""
    z: float
    """How many standard errors that is away from them."""


class StragglerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a window of collectives shows."""

    kind: StragglerKind
    ranks: tuple[int, ...] = ()
    """The slow ones."""
    host: str = ""
    """Of a slow node."""
    cost: float = 0.0
    """How much of the wall time would be saved without them, 0..1."""
    confidence: float = 0.0
    seconds: float = 0.0
    """Length of the window."""
    rounds: int = 0
    """Collectives that were compared."""
    busy: tuple[Busy, ...] = ()
    """Slowest first."""
    evidence: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

"""Who slows a running job down."""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.rank_names import name_ranks

StragglerKind = Literal["slow-rank", "slow-node", "slow-link", "imbalance", "even", "cannot-tell"]
"""``slow-link``: transfers between ranks take long. ``imbalance``: ranks differ, and too many are
slow to be the exception. ``even``: no rank is slow."""


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """The time that one rank spent without waiting for others, over the window."""

    rank: int
    host: str = ""
    share: float
    """Share of the wall time, 0 to 1."""
    ratio: float
    """That time relative to the median of the others: 1.3 means 30 % more work or less speed."""
    z: float
    """How many standard errors it is away from the others."""


class StragglerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a window of collectives shows."""

    kind: StragglerKind
    ranks: tuple[int, ...] = ()
    """The slow ranks."""
    host: str = ""
    """The host of a slow node."""
    cost: float = 0.0
    """Share of the wall time that would be saved without them, 0 to 1."""
    confidence: float = 0.0
    seconds: float = 0.0
    """Length of the window in seconds."""
    rounds: int = 0
    """How many collectives were compared."""
    busy: tuple[Busy, ...] = ()
    """The ranks' times, slowest first."""
    evidence: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class StragglerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Who slows a running job down, by the last look at its collectives."""

    kind: StragglerKind
    ranks: tuple[int, ...] = ()
    host: str = ""
    """The host of the slow rank, or the slow node."""
    cost_percent: float = 0.0
    """Percentage of the wall time that would be saved without it."""
    confidence: float = 0.0
    at: float = 0.0
    heat: tuple[tuple[float, float], ...] = ()
    """(Unix time, cost in percent) of the looks so far, oldest first."""
    evidence: tuple[str, ...] = ()

    @property
    def whom(self) -> str:
        """The slow ranks or nodes for a sentence; "" if nobody is slow."""
        if self.kind == "slow-node" and self.host:
            return f"all ranks of {self.host}"
        if self.kind == "slow-link":
            return f"the network of {self.host}" if self.host else f"the link of {_who(self.ranks)}"
        return _who(self.ranks)


def _who(ranks: tuple[int, ...]) -> str:
    return name_ranks(ranks) if ranks else ""

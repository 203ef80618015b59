"""One verdict on a drawn job, beside the truth."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.incident import Verdict


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict on one drawn job, and the truth."""

    source: str
    case: str
    """The fault."""
    harm: str
    """What was done to the evidence."""
    named: tuple[str, ...]
    truth: tuple[str, ...]
    kind: str
    confidence: float
    witnesses: dict[str, float] = {}
    """The weights that each source of evidence puts on the named one that has least, where evidence
    was weighed."""

    @property
    def is_right(self) -> bool:
        """Whether somebody is named, and no innocent."""
        return bool(self.named) and set(self.named) <= set(self.truth)

    @property
    def is_exact(self) -> bool:
        """Whether all culprits are named, and nobody else."""
        return set(self.named) == set(self.truth)


KNOWN_PLACE, UNKNOWN_PLACE = "known place", "unknown place"
"""Stacks are two witnesses: a rank at a place that waits for nobody, and one in code that no table
knows, which may wait there without a frame that says so."""


def by_witness(verdict: Verdict) -> dict[str, float]:
    """The weights by witness of the culprit that has least; empty if nothing was weighed."""
    stands = {fact.rank.rank: fact for fact in reversed(verdict.stacks) if fact.rank is not None}
    found: list[dict[str, float]] = []
    for culprit in verdict.culprits:
        fact = stands.get(culprit.rank) if culprit.rank is not None else None
        elsewhere = fact is not None and fact.waits_for_others is False
        weights: dict[str, float] = {}
        for item in verdict.evidence:
            if item.rank == culprit.rank and item.weight:
                place = KNOWN_PLACE if elsewhere else UNKNOWN_PLACE
                witness = place if item.source == "stacks" else item.source
                weights[witness] = weights.get(witness, 0.0) + item.weight
        found.append(weights)
    return min(found, key=lambda weights: sum(weights.values()), default={})

"""How sure a verdict is: who says that a rank is to blame, and how often that is right."""

from __future__ import annotations

from collections.abc import Iterable

from ray_sentinel.model.incident import EvidenceItem, Verdict
from ray_sentinel.model.stacks import StackFact

STACKS = "stacks"
KNOWN_PLACE, UNKNOWN_PLACE = "known place", "unknown place"
"""Stacks are two witnesses: a rank at a place that waits for nobody, and one in code that no table
knows, which may wait there without a frame that says so."""


def witness_of(source: str, fact: StackFact | None) -> str:
    """The witness that gives evidence: its ``source``, or for stacks what is known of the place
    where the rank stands. ``fact`` is its stack."""
    if source != STACKS:
        return source
    elsewhere = fact is not None and fact.waits_for_others is False
    return KNOWN_PLACE if elsewhere else UNKNOWN_PLACE


def summed(items: Iterable[EvidenceItem], fact: StackFact | None) -> dict[str, float]:
    """The weights of the evidence about one rank by witness. ``fact`` is its stack."""
    weights: dict[str, float] = {}
    for item in items:
        if item.weight:
            witness = witness_of(item.source, fact)
            weights[witness] = weights.get(witness, 0.0) + item.weight
    return weights


def by_witness(verdict: Verdict) -> dict[str, float]:
    """The weights by witness of the culprit that has least; empty if nothing was weighed."""
    stands = {fact.rank.rank: fact for fact in reversed(verdict.stacks) if fact.rank is not None}
    found = (
        summed(
            (item for item in verdict.evidence if item.rank == culprit.rank),
            stands.get(culprit.rank) if culprit.rank is not None else None,
        )
        for culprit in verdict.culprits
    )
    return min(found, key=lambda weights: sum(weights.values()), default={})

"""How sure an answer is: who testifies against the culprit, and how often that is right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ray_sentinel.model.incident import EvidenceItem, Verdict

Testimony = Mapping[str, float]
"""What each witness puts on a rank. A witness is a source with its kind of proof: ``stacks:
elsewhere``; what weakens a proof is one more, ``stacks: seen once``."""


def testimony(items: Iterable[EvidenceItem]) -> dict[str, float]:
    """What the evidence about one rank puts on it, by witness."""
    weights: dict[str, float] = {}
    for item in items:
        for witness in _witnesses(item):
            weights[witness] = weights.get(witness, 0.0) + item.weight
    return {witness: weight for witness, weight in weights.items() if weight}


def _witnesses(item: EvidenceItem) -> Iterator[str]:
    if not item.proof:
        yield item.source
    for proof in item.proof:
        yield f"{item.source}: {proof}"


def testified(verdict: Verdict) -> dict[str, float]:
    """What was put on the culprit that has least; empty if nothing was weighed."""
    ranks = [one.rank for one in verdict.culprits if one.rank is not None]
    found = (testimony(i for i in verdict.evidence if i.rank == rank) for rank in ranks)
    return min(found, key=lambda one: sum(one.values()), default={})

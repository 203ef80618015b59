"""Why somebody was named, and nobody else: what counts for and against each rank (``--why``)."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ray_sentinel.cli.output import Printer
from ray_sentinel.engine.verdicts.judgement import NAMED, EvidenceScores
from ray_sentinel.model.incident import EvidenceItem
from ray_sentinel.model.rank_names import name_ranks

MOST_SHOWN = 12
"""Most groups of ranks that are printed; the JSON output has them all."""


class WeighedRanks(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks about which the same is known."""

    ranks: tuple[int, ...]
    score: float
    is_named: bool
    evidence: tuple[EvidenceItem, ...]
    """The evidence, worded for the first of these ranks."""


class Weighing(msgspec.Struct, frozen=True, kw_only=True):
    """All that was weighed."""

    named_from: float
    """Score from which a rank may be named."""
    ranks: tuple[WeighedRanks, ...]
    """Groups of ranks about which the same is known, the most suspected first."""
    context: tuple[EvidenceItem, ...]
    """What was observed that counts for or against no rank in particular."""


def weighing(scores: EvidenceScores | None, named: Collection[int | None]) -> Weighing | None:
    """What is known, ranks alike told together; None if nothing was weighed."""
    if scores is None:
        return None
    groups: dict[tuple[object, ...], list[tuple[int, float, tuple[EvidenceItem, ...]]]] = {}
    for _, score, items in scores.by_score():
        rank = next((item.rank for item in items if item.rank is not None), None)
        if rank is not None:
            alike = (rank in named, *((item.source, item.weight) for item in items))
            groups.setdefault(alike, []).append((rank, score, items))
    return Weighing(
        named_from=NAMED,
        ranks=tuple(
            WeighedRanks(
                ranks=tuple(sorted(rank for rank, _, _ in group)),
                score=group[0][1],
                is_named=group[0][0] in named,
                evidence=min(group)[2],
            )
            for group in groups.values()
        ),
        context=scores.context(),
    )


def print_weighing(why: Weighing, say: Printer) -> None:
    """For people: each score with the lines that it is the sum of."""
    say(f"\nWhat was weighed (a rank may be named from {why.named_from:g} on):", "bold")
    for group in why.ranks[:MOST_SHOWN]:
        named = ", named" if group.is_named else ""
        style = "red" if group.is_named else ""
        say(f"  {group.score:+6.2f}  {name_ranks(list(group.ranks))}{named}", style)
        for item in group.evidence:
            say(f"    {item.weight:+6.2f}  {item.source}: {item.text}")
    if len(why.ranks) > MOST_SHOWN:
        say(f"  ... and {len(why.ranks) - MOST_SHOWN} groups of ranks more: --json has them all")
    for item in why.context:
        say(f"            {item.source}: {item.text}", "dim")

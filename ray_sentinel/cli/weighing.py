"""Why somebody was named, and nobody else: what counts for and against each rank (``--why``)."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ray_sentinel.cli.output import Printer
from ray_sentinel.engine.verdicts.judgement import NAMED, EvidenceScores
from ray_sentinel.model.incident import EvidenceItem
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.waitgraph.confidence import parts, put_on_rank, stated, together

MOST_SHOWN = 12
"""Most groups of ranks that are printed; the JSON output has them all."""


class WeighedRanks(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks about which the same is known."""

    ranks: tuple[int, ...]
    score: float
    is_named: bool
    evidence: tuple[EvidenceItem, ...]
    """The evidence, worded for the first of these ranks."""
    log_odds: dict[str, float] = {}
    """For ranks that are named, what the log-odds of being right are the sum of."""
    confidence: float | None = None
    """The confidence that follows from that sum; None if they are not named."""


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
    told = [_of_group(group, named) for group in groups.values()]
    return Weighing(named_from=NAMED, ranks=tuple(told), context=scores.context())


def _of_group(
    group: list[tuple[int, float, tuple[EvidenceItem, ...]]], named: Collection[int | None]
) -> WeighedRanks:
    (rank, score, items), *_ = group
    found = WeighedRanks(
        ranks=tuple(sorted(rank for rank, _, _ in group)),
        score=score,
        is_named=rank in named,
        evidence=min(group)[2],
    )
    if not found.is_named:
        return found
    known = together(put_on_rank(items), len(named))
    odds = {witness: round(part, 2) for witness, part in parts(known).items()}
    return msgspec.structs.replace(found, log_odds=odds, confidence=stated(known))


def print_weighing(why: Weighing, say: Printer) -> None:
    """For people: each score with the lines that it is the sum of."""
    say(f"\nWhat was weighed (a rank may be named from {why.named_from:g} on):", "bold")
    for group in why.ranks[:MOST_SHOWN]:
        named = ", named" if group.is_named else ""
        style = "red" if group.is_named else ""
        say(f"  {group.score:+6.2f}  {name_ranks(list(group.ranks))}{named}", style)
        for item in group.evidence:
            say(f"    {item.weight:+6.2f}  {item.source}: {item.text}")
        if group.confidence is not None:
            sum_ = ", ".join(f"{witness} {part:+.2f}" for witness, part in group.log_odds.items())
            say(f"    {group.confidence:6.2f}  is the confidence; its log-odds: {sum_}")
    if len(why.ranks) > MOST_SHOWN:
        say(f"  ... and {len(why.ranks) - MOST_SHOWN} groups of ranks more: --json has them all")
    for item in why.context:
        say(f"            {item.source}: {item.text}", "dim")

"""How sure an answer is: who testifies against the culprit, and how often that is right.

Judges name somebody by weights that are written by hand: those below, and the strength that each
kind of proof has where it is found. How often such a name is right is fitted to jobs with a known
culprit (``fitted_weights``), and that is the number for people. The log-odds are a sum: a constant,
something if several are named, and for each witness its factor times what it puts on the culprit.
The live judge and those of one kind of evidence state it by the same sum, so the same evidence is
as sure in each of them. More evidence never makes it lower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ray_sentinel.model.incident import EvidenceItem, Verdict
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.waitgraph.fitted_weights import FACTORS

Testimony = Mapping[str, float]
"""What each witness puts on a rank. A witness is a source with its kind of proof: ``stacks:
elsewhere``; what weakens a proof is one more: ``stacks: seen once``."""

RECORDER, RAS, STACKS, CALLS = "flight-recorder", "nccl-ras", "stacks", "ray"
SEEN_ONCE, OUTNUMBERED = "seen once", "outnumbered"
"""What weakens a proof by stacks."""
WEAKENING = (f"{STACKS}: {SEEN_ONCE}", f"{STACKS}: {OUTNUMBERED}")
CONSTANT, SEVERAL, NOT_DRAWN = "constant", "several", "any other"
"""Names of the factors that are no witness's; the last one holds for those that no job had."""
MOST = 0.98
"""Highest confidence: two of a hundred verdicts may be wrong for reasons that nobody thought of."""

# What each source puts on a rank. On one scale: 2.5 is enough to name it, 6 and more is proof.

PROOF = 6.0
"""What a whole answer puts on its culprits that rests on one thing, such as a circle of calls."""
RECORDER_WEIGHT = 5.0
"""The weight of what recorders show, as a multiple of its strength."""
RECORDER_WAITS = -4.0
"""The score of a rank that waits for others according to the recorders."""
RAS_WEIGHT = 6.0
"""The weight of what RAS shows, as a multiple of its strength. A lag that lasts over two polls
outweighs a stack that looks like waiting; one that was seen once does not."""
RAS_WAITS = -2.0
"""The score of a rank that waits for others according to RAS."""
AWAY = 3.0
"""The score of a rank that is outside of what the others wait in, as surely as stacks can tell."""
SURE = 0.6
"""The strength from which stacks count in full; the least strength that names a rank is 0.5."""
MOVED = -2.0
"""The score of a rank whose stack changes."""
MOVES = ("moves",)
"""What is said of it."""


def tool_weight(facts: RecorderFacts | RasFacts) -> float:
    """What recorders, or RAS, put on each rank that they name."""
    if isinstance(facts, RasFacts):
        return RAS_WEIGHT * facts.strength
    return RECORDER_WEIGHT * max(facts.strength, 0.5)


def stacks_weight(strength: float) -> float:
    """What stacks put on each rank that they name."""
    return AWAY * min(1.0, strength / SURE)


def put_on_rank(items: Iterable[EvidenceItem]) -> dict[str, float]:
    """What the evidence about one rank puts on it, by witness."""
    weights: dict[str, float] = {}
    for item in items:
        for witness in witnesses(item.source, item.proof):
            weights[witness] = weights.get(witness, 0.0) + item.weight
    return {witness: weight for witness, weight in weights.items() if weight}


def witnesses(source: str, proof: Sequence[str]) -> Iterator[str]:
    """The witnesses of one line of evidence."""
    if not proof:
        yield source
    for one in proof:
        yield f"{source}: {one}"


def by_tool(facts: RecorderFacts | RasFacts) -> list[Testimony]:
    """What recorders, or RAS, by themselves put on each process that they name."""
    source, weight = RAS if isinstance(facts, RasFacts) else RECORDER, tool_weight(facts)
    return [dict.fromkeys(witnesses(source, (one.kind,)), weight) for one in facts.culprits]


def by_calls(kind: str) -> Testimony:
    """What the waits of a Ray job put on whom they end at; ``kind`` is that of the end."""
    return dict.fromkeys(witnesses(CALLS, (kind,)), PROOF)


def put_on_culprit(verdict: Verdict) -> Testimony:
    """What was put on the culprit of whom a verdict is least sure; empty if nothing was."""
    whole = [item for item in verdict.evidence if item.proof and not item.weight]
    ranks = [one.rank for one in verdict.culprits if one.rank is not None]
    found: list[Testimony] = [
        put_on_rank(item for item in verdict.evidence if item.rank == rank) for rank in ranks
    ]
    if not any(found):
        found = [by_calls(kind) for item in whole[:1] for kind in item.proof if verdict.culprits]
    return weakest(found) if found else {}


def weakest(culprits: Sequence[Testimony]) -> Testimony:
    """The testimony about the culprit of whom one is least sure. That several are named together
    is a part of it."""
    least = min(culprits, key=lambda one: sum(parts(one).values()))
    return together(least, len(culprits))


def together(one: Testimony, named: int) -> Testimony:
    """The testimony about one of so many who are ``named``."""
    return {SEVERAL: 1.0, **one} if named > 1 else one


def parts(one: Testimony, factors: Mapping[str, float] = FACTORS) -> dict[str, float]:
    """What the log-odds that a culprit is rightly named are the sum of."""
    other = factors[NOT_DRAWN]
    told = {who: factors.get(who, other) * weight for who, weight in one.items()}
    # What weakens a proof takes off no more than the proof gives: without it one is no surer.
    doubts = {who for who in WEAKENING if told.get(who, 0.0) < 0.0}
    proof = sum(max(part, 0.0) for who, part in told.items() if who.startswith(f"{STACKS}: "))
    share = min(1.0, proof / -sum(told[who] for who in doubts)) if doubts else 1.0
    told |= {who: share * told[who] for who in doubts}
    return {CONSTANT: factors[CONSTANT], **told}


def stated(one: Testimony, factors: Mapping[str, float] = FACTORS) -> float:
    """The confidence (0..1) for what is put on the weakest culprit."""
    odds = sum(parts(one, factors).values())
    return round(min(MOST, 0.5 + 0.5 * math.tanh(0.5 * odds)), 3)


def confidence(culprits: Sequence[Testimony]) -> float:
    """How often a name is right (0..1) if so much was put on each of the culprits."""
    return stated(weakest(culprits))


def of_tool(facts: RecorderFacts | RasFacts) -> float:
    """The confidence (0..1) of what recorders, or RAS, show by themselves. If they name nobody, it
    is the strength of their reason for that."""
    return confidence(by_tool(facts)) if facts.culprits else facts.strength

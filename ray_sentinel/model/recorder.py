"""The result of a set of flight-recorder dumps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from ray_sentinel.model.rank_names import name_ranks

RecorderKind = Literal[
    "not-enqueued",
    "device-stuck",
    "collective-mismatch",
    "no-dump",
    "waiting-outside",
    "running",
    "cannot-tell",
]


class RecorderCulprit(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that others wait for and that waits for nobody."""

    rank: int
    kind: RecorderKind
    reason: str


class RecorderWait(msgspec.Struct, frozen=True, kw_only=True):
    """What an innocent rank waits for."""

    rank: int
    operation: str
    waits_for: tuple[int, ...] = ()


class RecorderFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one set of dumps shows. The kind "cannot-tell", without culprits, is a valid answer."""

    kind: RecorderKind
    culprits: tuple[RecorderCulprit, ...] = ()
    waits: tuple[RecorderWait, ...] = ()
    strength: float = msgspec.field(default=0.0, name="confidence")
    """How strong the proof is by the judge's own rules, from 0 to 1; decides what it weighs. How
    often such an answer is right, ``waitgraph.confidence`` tells."""
    evidence: tuple[str, ...] = ()
    """Sentences, one a line, in the order of the reasoning."""
    problems: tuple[str, ...] = ()
    """Dumps that could not be read, with the file's name and the remedy."""
    ranks: tuple[int, ...] = ()
    """The ranks whose dumps were read."""


def describe_waits(waits: Sequence[RecorderWait]) -> list[tuple[list[int], str]]:
    """Ranks that wait for the same, and for what: ``([0, 1], "for rank 3 in all_reduce")``.

    In an operation that many have come to, each waits for all the others: they are told together,
    not each with a list of the others.
    """
    members: dict[tuple[str, frozenset[int]], list[RecorderWait]] = {}
    for wait in waits:
        everyone = frozenset((wait.rank, *wait.waits_for))
        members.setdefault((wait.operation, everyone), []).append(wait)
    groups: dict[str, list[int]] = {}
    for (operation, everyone), alike in members.items():
        inside = {wait.rank for wait in alike}
        for wait in alike:
            whom = f"for {name_ranks(wait.waits_for)}" if wait.waits_for else "for their peers"
            if len(inside) > 1 and set(wait.waits_for) == everyone - {wait.rank}:
                rest = everyone - inside
                whom = "for each other" + (f" and for {name_ranks(rest)}" if rest else "")
            groups.setdefault(f"{whom} in {operation}", []).append(wait.rank)
    return [(ranks, where) for where, ranks in groups.items()]

"""The result of a set of flight-recorder dumps."""

from __future__ import annotations

from typing import Literal

import msgspec

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

"""The result of polling NCCL's RAS service."""

from __future__ import annotations

from typing import Literal

import msgspec

RasKind = Literal[
    "rank-dead",
    "rank-unresponsive",
    "communicator-error",
    "not-enqueued",
    "collective-mismatch",
    "left-communicator",
    "startup-stuck",
    "stall",
    "running",
    "no-mismatch",
    "cannot-tell",
]
"""``no-mismatch``: nothing was found, which proves nothing. ``stall``: no count moves, and nothing
tells the ranks apart."""


class RasCulprit(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that the others wait for. ``rank`` is None if only its process is known."""

    rank: int | None
    host: str
    """The host as RAS prints it, mostly the node's address."""
    pid: int | None
    gpu: str = ""
    """Its NVML index, as text."""
    kind: RasKind
    reason: str


class RasWait(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that are ahead of those they wait for, in one communicator."""

    ranks: tuple[int, ...]
    communicator: str
    text: str


class RasFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of one or more polls. No culprits is a valid answer."""

    kind: RasKind
    culprits: tuple[RasCulprit, ...] = ()
    waits: tuple[RasWait, ...] = ()
    strength: float = msgspec.field(default=0.0, name="confidence")
    """How strong the proof is by the judge's own rules, from 0 to 1; decides what it weighs. How
    often such an answer is right, ``waitgraph.confidence`` tells."""
    evidence: tuple[str, ...] = ()
    """Sentences, one a line, in the order of the reasoning."""
    problems: tuple[str, ...] = ()
    """What could not be read or understood, with the remedy."""
    version: str = ""
    """The version of NCCL or RCCL according to itself; empty where it does not say."""
    library: str = ""
    """"NCCL" or "RCCL"; empty where unknown."""
    polls: int = 0
    communicators: int = 0
    """How many communicators there were in the last poll of every job that was seen."""

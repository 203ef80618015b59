"""Dumps of several communication libraries of one job: NCCL's recorder does not see who waits in
gloo's operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.reduced import read
from ray_sentinel.model.recorder import RecorderFacts


def library(dumps: Mapping[int, bytes]) -> str:
    """The library whose operations a set of dumps holds: "nccl", "gloo", ...; empty if no dump
    shows any."""
    for rank in dumps:
        try:
            dump = read(rank, dumps[rank])
        except InputError:
            continue
        for entry in [*dump.pending, *dump.last_done.values()]:
            if entry.library:
                return entry.library
    return ""


def combine(facts: Sequence[RecorderFacts]) -> RecorderFacts:
    """One explanation from those of each library, the main one first.

    A rank that stands still according to one library and waits according to another is a waiter in
    the first.
    """
    waiting = {wait.rank for one in facts for wait in one.waits}
    culprits = {c.rank: c for one in facts for c in one.culprits if c.rank not in waiting}
    cleared = sorted({c.rank for one in facts for c in one.culprits} - culprits.keys())
    telling = [one for one in facts if any(c.rank in culprits for c in one.culprits)]
    main = telling[0] if telling else _unnamed(facts, bool(cleared))
    remarks = tuple(
        f"rank {rank} waits in an operation of another library, so it is not accused"
        for rank in cleared
    )
    waits = {wait.rank: wait for one in reversed(facts) for wait in one.waits}
    return msgspec.structs.replace(
        main,
        culprits=tuple(culprits[rank] for rank in sorted(culprits)),
        waits=tuple(waits[rank] for rank in sorted(waits.keys() - culprits.keys())),
        evidence=tuple(line for one in telling or [main] for line in one.evidence) + remarks,
        problems=tuple(line for one in facts for line in one.problems),
    )


def _unnamed(facts: Sequence[RecorderFacts], cleared: bool) -> RecorderFacts:
    """If nobody can be named: the explanation that still says most."""
    if cleared:
        return msgspec.structs.replace(facts[0], kind="cannot-tell", culprits=(), strength=0.3)
    return next((one for one in facts if one.kind == "cannot-tell"), facts[0])

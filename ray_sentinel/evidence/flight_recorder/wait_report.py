"""What each innocent rank waits for, in words."""

from __future__ import annotations

from ray_sentinel.evidence.flight_recorder.waits import Key, Operation, Waits
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.model.recorder import RecorderWait

MOST_NAMED = 256
"""Most ranks that are named of those that one rank waits for; the others are left out."""


def report_waits(world: World, waits: Waits, culprits: set[int]) -> tuple[RecorderWait, ...]:
    """For every rank that waits in an operation and is not a culprit: which operation, and for
    whom."""
    result = []
    told: dict[Key, tuple[str, tuple[int, ...]]] = {}
    for rank, keys in waits.fronts.items():
        if rank in culprits or not keys:
            continue
        key = keys[0]
        if key not in told:
            operation = waits.operations[key]
            told[key] = (
                world.group(operation.group).numbered(operation.number, operation.title),
                tuple(sorted(set(_whom(operation)))[:MOST_NAMED]),
            )
        text, whom = told[key]
        others = tuple(other for other in whom if other != rank) if rank in whom else whom
        result.append(RecorderWait(rank=rank, operation=text, waits_for=others))
    return tuple(result)


def _whom(operation: Operation) -> list[int]:
    """The nearest explanation: who is missing, else who is held elsewhere, else all the others."""
    return operation.absent or operation.elsewhere or operation.silent or operation.inside

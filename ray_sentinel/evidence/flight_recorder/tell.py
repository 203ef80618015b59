"""What each innocent rank waits for, in words."""

from __future__ import annotations

from ray_sentinel.evidence.flight_recorder.waits import Operation, Waits
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.model.recorder import RecorderWait


def tell_waits(world: World, waits: Waits, culprits: set[int]) -> tuple[RecorderWait, ...]:
    """For every rank that is held in an operation and is no culprit: which, and by whom."""
    result = []
    for rank, keys in waits.fronts.items():
        if rank in culprits:
            continue
        for key in keys[:1]:
            operation = waits.operations[key]
            entry = operation.entry
            label = world.group(operation.group).label
            title = entry.title if entry else "an operation that the ring has lost"
            result.append(
                RecorderWait(
                    rank=rank,
                    operation=f"{title} in {label}, number {_number(operation)}",
                    waits_for=tuple(sorted(set(_whom(operation)) - {rank})),
                )
            )
    return tuple(result)


def _number(operation: Operation) -> int:
    if operation.key[0] == "p2p" and operation.entry is not None:
        return operation.entry.seq
    return operation.key[2]


def _whom(operation: Operation) -> list[int]:
    """The nearest explanation: who is missing, else who is held elsewhere, else all the others."""
    return operation.absent or operation.elsewhere or operation.silent or operation.inside

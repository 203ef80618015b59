"""Finds whose call was out of order if two ranks wait for each other in different collectives.

Where transfers are not recorded, ranks that wait in them seem to stand still, and the cycle does
not close. But if a rank sits in one call while its peer waits for it in another, one of the two
made its call too early; ranks that have made either of the two calls show which comes first. Stages
of a pipeline may make different numbers of calls in a step, so the same number is not the same
place in their programs. Only ranks that had come equally far in one counter when they reached the
other call are compared.
"""

from __future__ import annotations

from ray_sentinel.evidence.alignment import order_votes
from ray_sentinel.evidence.flight_recorder.groups import some_ranks
from ray_sentinel.evidence.flight_recorder.peer_roles import MOST_VOTERS, Call, Equals
from ray_sentinel.evidence.flight_recorder.waits import Operation, Waits
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.evidence.sentences import has_not_come

_LEAST_VOTES = 2
_MOST_ASKED = 64
"""Most ranks that are asked for their earlier calls: the whole dump of each is read again for
it."""


def out_of_turn(waits: Waits, equals: Equals) -> dict[int, str]:
    """Ranks whose call was too early, with the reason.

    Only if at least two other ranks of the same program made either of the two calls, and all of
    them made the peers' call first.
    """
    world, culprits = waits.world, dict[int, str]()
    due_calls = [op for op in waits.operations.values() if op.key[0] == "collective"]
    for due in due_calls:
        for rank in due.absent:
            for made in (waits.operations[key] for key in waits.fronts.get(rank, ())):
                peers = set(due.held) & set(made.absent)
                if made.key[0] != "collective" or not peers:
                    continue
                calls = _call(world, due), _call(world, made)
                voters = _same_program(equals, rank, peers, calls)
                votes = order_votes(*calls, map(equals.sequence, voters[:MOST_VOTERS]))
                if len(votes) >= _LEAST_VOTES and all(votes):
                    culprits[rank] = _describe(world, made, due, len(votes))
    return culprits


def _same_program(
    equals: Equals, rank: int, peers: set[int], calls: tuple[Call, Call]
) -> list[int]:
    """Other ranks that had made as many calls of the one counter before the other's call before
    this; the nearest first, because those share a stage."""
    (counter, _), at = calls
    before = equals.sequence(rank).reached_before(counter, at)
    if before is None:
        return []
    others = sorted(equals.world.dumps.keys() - peers - {rank}, key=lambda other: abs(other - rank))
    return [
        other
        for other in others[:_MOST_ASKED]
        if equals.sequence(other).reached_before(counter, at) == before
    ]


def _call(world: World, operation: Operation) -> Call:
    return (world.group(operation.group).kind, False), operation.key[2]


def _describe(world: World, made: Operation, due: Operation, votes: int) -> str:
    now, before = (world.group(op.group).numbered(op.key[2]) for op in (made, due))
    wait = "waits" if len(due.held) == 1 else "wait"
    held_up = (
        f"in which {some_ranks(due.held)} {wait} for it, and which {votes} other ranks made first"
    )
    return has_not_come(before, held_up, f"is in {now}")

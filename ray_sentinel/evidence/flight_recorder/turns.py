"""Two ranks that wait for each other in different collectives: whose call came out of turn.

Where transfers are not recorded, ranks that wait in them seem to stand, and the circle does not
close. But a rank that sits in one call, while its peer waits for it in another, made its call too
early, or its peer did: those that came to either of the two calls say which comes first.
"""

from __future__ import annotations

from ray_sentinel.evidence.flight_recorder.circles import Circles
from ray_sentinel.evidence.flight_recorder.equals import Call
from ray_sentinel.evidence.flight_recorder.groups import some_ranks
from ray_sentinel.evidence.flight_recorder.waits import Operation, Waits
from ray_sentinel.evidence.flight_recorder.world import World

_LEAST_VOTES = 2


def out_of_turn(world: World, waits: Waits, circles: Circles) -> dict[int, str]:
    """Ranks whose call came too early, with the reason.

    Only where at least two other ranks came to either of the two calls, and all made the peers'
    call first.
    """
    culprits: dict[int, str] = {}
    due_calls = [op for op in waits.operations.values() if op.key[0] == "collective"]
    for due in due_calls:
        for rank in due.absent:
            for made in (waits.operations[key] for key in waits.fronts.get(rank, ())):
                peers = set(due.held) & set(made.absent)
                if made.key[0] != "collective" or not peers:
                    continue
                voters = [other for other in world.dumps if other != rank and other not in peers]
                votes = circles.order_votes(_call(world, due), _call(world, made), voters)
                if len(votes) >= _LEAST_VOTES and all(votes):
                    culprits[rank] = _say(world, made, due, len(votes))
    return culprits


def _call(world: World, operation: Operation) -> Call:
    return (world.group(operation.group).kind, False), operation.key[2]


def _say(world: World, made: Operation, due: Operation, votes: int) -> str:
    now, before = (f"{world.group(op.group).label} number {op.key[2]}" for op in (made, due))
    wait = "waits" if len(due.held) == 1 else "wait"
    return (
        f"is in {now} without {before}, in which {some_ranks(due.held)} {wait} for it, and which "
        f"{votes} other ranks made first"
    )

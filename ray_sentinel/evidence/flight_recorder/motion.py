"""Whether the dumps show the job at one moment, or a job that moved between them."""

from __future__ import annotations

from collections.abc import Mapping

from ray_sentinel.evidence.flight_recorder.dump import RankDump
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.evidence.movement import compared


def moved_since(before: Mapping[int, RankDump], now: Mapping[int, RankDump]) -> list[int]:
    """The ranks whose dumps differ in what was issued or completed."""
    both = sorted(before.keys() & now.keys())
    return [rank for rank in both if compared((_mark(before[rank]), _mark(now[rank]))) == "moved"]


def _mark(dump: RankDump) -> tuple[object, ...]:
    last = {key: entry.record for key, entry in dump.last_done.items()}
    return dump.status, [entry.record for entry in dump.pending], last


def moving(world: World) -> str:
    """Proof that the job moved while it was dumped, as a sentence; empty if there is none.

    Nobody completes an operation that needs everyone before everyone has enqueued it: where one
    rank completed what another had not yet enqueued, the dumps are of different moments.
    """
    for rank, dump in world.dumps.items():
        for entry in dump.last_done.values():
            if entry.p2p or not entry.needs_everyone or (entry.retired and not entry.done):
                continue
            group = world.group_of(rank, entry)
            if group is None:
                continue
            late = world.members(group.id, entry.seq)["absent"]
            if late:
                return (
                    f"rank {rank} has completed {world.title(rank, entry)}, which rank {late[0]} "
                    "had not yet enqueued"
                )
    return ""

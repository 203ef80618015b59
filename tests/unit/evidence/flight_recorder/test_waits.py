"""The graph of who waits for whom, as it grows with the job."""

from __future__ import annotations

from collections.abc import ItemsView

import msgspec

from ray_sentinel.evidence.flight_recorder.dump import RankDump
from ray_sentinel.evidence.flight_recorder.tables import GroupConfig, GroupStatus
from ray_sentinel.evidence.flight_recorder.waits import Waits
from ray_sentinel.evidence.flight_recorder.world import World

RANKS = 12
GROUPS = 6


def cut(rank: int) -> RankDump:
    """A dump without its entries: only the counters of its groups are there."""
    return RankDump(
        rank=rank,
        configs={str(pg): GroupConfig(str(pg), f"G{pg}", (*range(RANKS),)) for pg in range(GROUPS)},
        status={pg: GroupStatus(4, 4) for pg in range(GROUPS)},
        pending=[],
        last_done={},
        counts={},
        from_start=False,
        first_record=None,
        cut=True,
    )


class Counted(dict[int, RankDump]):
    """Counts how often all dumps are gone through."""

    passes = 0

    def items(self) -> ItemsView[int, RankDump]:  # type: ignore[override]
        self.passes += 1
        return super().items()


def test_all_dumps_are_gone_through_a_few_times_however_many_are_cut_off() -> None:
    world = World({rank: cut(rank) for rank in range(RANKS)})
    world.dumps = counted = Counted(world.dumps)
    waits = Waits(world)
    assert waits.fronts == {rank: [] for rank in range(RANKS)}
    assert counted.passes < RANKS


def test_a_cut_dump_that_tells_of_no_group_waits_in_none() -> None:
    dump = msgspec.structs.replace(cut(0), configs={}, status={7: GroupStatus(4, 3)})
    assert Waits(World({0: dump})).fronts == {0: []}

"""What is said of ranks reads well, for one rank as for several."""

from __future__ import annotations

import pytest

from ray_sentinel.waitgraph.recorder import explain
from tests.support.recorder_sim.dumps import NCCL, write
from tests.support.recorder_sim.faults import simulate


@pytest.mark.parametrize(
    ("layout", "fault", "lost", "text"),
    [
        ("pp4", "stop before", {0}, "nothing else explains why 1 rank waits in the counterpart"),
        ("dp8", "stop before", {7}, "nothing else explains why 7 ranks wait in all_reduce"),
        ("dp8", "stop before", {1, 7}, "ranks 1, 7 left no dump that says anything: others wait"),
        ("pp4", "wrong op", {0, 3}, "rank 1 called reduce of 1 Float; rank 2 called all_reduce"),
        ("dp8", "stop before", set(), "in which 7 other ranks wait; it has nothing pending"),
        ("dp8", "stop inside", set(), "in which 7 other ranks wait; it is inside the launch of"),
        ("pp4", "stop before", set(), "in which 1 other rank waits; it has nothing pending"),
    ],
)
def test_ranks_are_named_as_a_person_would(
    layout: str, fault: str, lost: set[int], text: str
) -> None:
    dumps = write(simulate(layout, fault, 0).machine, NCCL)
    left = {rank: data for rank, data in dumps.items() if rank not in lost}
    assert text in "; ".join(explain(left, world_size=len(dumps)).evidence)

"""Facts of flight-recorder dumps, and what the solver makes of them."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.flight_recorder.reduced import read
from ray_sentinel.evidence.flight_recorder.waits import Waits
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.waitgraph.facts import IN_OPERATION, NOT_REACHED
from ray_sentinel.waitgraph.recorder_facts import RecorderWaits
from ray_sentinel.waitgraph.solver import solve
from tests.support.recorder_sim.dumps import NCCL, write
from tests.support.recorder_sim.faults import simulate


@pytest.mark.parametrize(
    ("fault", "lost", "kind"),
    [
        ("stop before", False, "standing"),
        ("stop before", True, "mute"),
        ("device unnoticed", False, "broken"),
        ("wrong size", False, "circle"),
    ],
)
def test_the_root_is_what_all_others_wait_for(fault: str, lost: bool, kind: str) -> None:
    case = simulate("dp8", fault, 0)
    given = write(case.machine, NCCL)
    dumps = {rank: read(rank, data) for rank, data in given.items()}
    if lost:
        dumps = {rank: dump for rank, dump in dumps.items() if rank not in case.culprits}
    told = RecorderWaits(Waits(World(dumps, world_size=len(given))))
    (root,) = solve(told.facts)
    ranks, operations = told.members(root)
    assert root.kind == kind
    if kind == "circle":
        assert (len(ranks), len(operations)) == (8, 1)
        return
    assert set(ranks) == case.culprits
    assert not operations
    if kind != "broken":
        assert len(root.waiters) == 7
        assert [edge.how for edge in root.chain] == [IN_OPERATION, NOT_REACHED]

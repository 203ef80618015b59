"""A waiting rank inside a launch that does not return: stuck itself, or its queue is full."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.flight_recorder import explain
from tests.support.recorder_fleet.cases import make
from tests.support.recorder_fleet.write import HANDS, dumps
from tests.support.recorder_sim.dumps import NCCL, write
from tests.support.recorder_sim.machine import Fault, Machine
from tests.support.recorder_sim.program import LAYOUTS


def two_near(layout: str, at: int, later: int) -> tuple[set[int], set[int], str]:
    """Rank 3 stops, its neighbour 2 inside a launch some calls later: named, culprits, reasons."""
    faults = [Fault(3, "stop", at), Fault(2, "inside", at + later)]
    machine = Machine(LAYOUTS[layout](), faults, 7)
    machine.run()
    facts = explain(write(machine, NCCL))
    named = {culprit.rank for culprit in facts.culprits}
    return named, machine.culprits, " ".join(culprit.reason for culprit in facts.culprits)


@pytest.mark.parametrize("layout", ["tp2dp4", "3d8"])
def test_a_neighbour_of_a_culprit_inside_a_launch_is_named_too(layout: str) -> None:
    both = by_launch = 0
    for at in range(8, 20):
        for later in (1, 2):
            named, culprits, reasons = two_near(layout, at, later)
            assert named <= culprits, (at, later, reasons)
            both += named == culprits == {2, 3}
            by_launch += "which has not returned" in reasons
    assert by_launch >= 3, (both, by_launch)
    assert both >= by_launch


@pytest.mark.parametrize("hand", ["2.2", "2.9"])
@pytest.mark.parametrize("fault", ["host", "launch", "unseen", "host and unseen"])
def test_innocents_whose_queue_is_full_are_not_named(fault: str, hand: str) -> None:
    launching = 0
    for seed in range(16):
        case = make(fault, seed)
        case.job.fill_queues()
        launching += sum(
            not made[-1].launched
            for rank, made in enumerate(case.job.made)
            if rank not in case.culprits
        )
        facts = explain(dumps(case.job, HANDS[hand]))
        assert {culprit.rank for culprit in facts.culprits} <= case.culprits, facts.evidence
    assert launching, "some innocent is inside a launch"

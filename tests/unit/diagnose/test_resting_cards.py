"""GPUs that rest while others work are no measure of them, and are not accused for resting."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ray_sentinel.diagnose.case import DiagnoseOptions
from ray_sentinel.diagnose.examine import examine
from ray_sentinel.model.diagnosis import Diagnosis
from tests.support.diagnosis import source_of
from tests.support.tsdb_scenarios import decoys
from tests.support.tsdb_scenarios.truth import Scenario, Truth
from tests.support.tsdb_scenarios.world import REST, WORK, World

LAYOUTS = [("MI300X", 4), ("H100", 8), ("B200", 4), ("MI355X", 6)]
HOT = 14.0


def spare_node(world: World) -> Truth:
    """The last node is held in reserve for the whole job."""
    decoys.usual(world)
    world.state[-1] = REST
    return Truth("", "")


def turns(world: World) -> Truth:
    """Rollout nodes rest while trainers work, and the other way round; one batch takes long."""
    decoys.usual(world)
    rollout = (world.t // 90) % 2 == 0
    half = world.hosts // 2
    long = world.after(0.6 * world.t[-1], 0.6 * world.t[-1] + 400)
    world.state[:half, :, rollout | long] = REST
    world.state[half:, :, ~rollout & ~long] = REST
    return Truth("", "")


def first_node_evaluates(world: World) -> Truth:
    """Three times the first node works alone for some minutes."""
    decoys.usual(world)
    for share in (0.3, 0.6, 0.9):
        alone = world.after(share * world.t[-1], share * world.t[-1] + 240)
        world.state[1:, :, alone] = REST
        world.slowdown[alone] = 6
    return Truth("", "")


def hot_card_beside_a_spare_node(world: World) -> Truth:
    """A card runs hot, and the node in reserve takes no part in the comparison."""
    truth = spare_node(world)
    assert (world.state[0] == WORK).all()
    world.temp_extra[0, 3, world.after(0.5 * world.t[-1])] += HOT
    return truth


def answer(build: Callable[[World], Truth], layout: int) -> Diagnosis:
    model, hosts = LAYOUTS[layout]
    world, _ = Scenario(build.__name__, build).make(layout, model=model, hosts=hosts)
    return examine(source_of(world), options=DiagnoseOptions()).diagnosis


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
@pytest.mark.parametrize("build", [spare_node, turns, first_node_evaluates])
def test_no_card_is_accused(build: Callable[[World], Truth], layout: int) -> None:
    found = answer(build, layout)
    assert not found.culprits, found.root_cause


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_a_hot_card_is_still_found(layout: int) -> None:
    found = answer(hot_card_beside_a_spare_node, layout)
    assert {(one.host, one.gpu) for one in found.culprits} == {("node001", "3")}

"""Clocks that are set while a job runs: on an agent's node, on all, and agents that begin anew."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from ray_sentinel.engine.actions import AskArrivals, TakeStacks
from ray_sentinel.engine.cluster import OFFSETS, NodeState
from ray_sentinel.engine.straggling import offsets
from ray_sentinel.model.progress import Snapshot
from tests.support.engine_sim import ATTACHED, Sim

HOUR, DAY = 3600.0, 86_400.0
STEPS = pytest.mark.parametrize("step", [-HOUR, -2.0, HOUR, DAY])
NODES = pytest.mark.parametrize("nodes", [["n1"], ["n0", "n1", "n2"]], ids=["one", "all"])

Party = Callable[[Sim, str, float], None]


def agent_restarted(sim: Sim, node: str, step: float) -> None:
    """The wall clock was set, and the agent began anew with it."""
    sim.restart_agent(node, -step)


def clock_followed(sim: Sim, node: str, step: float) -> None:
    """An agent of an older version, which takes the wall clock's time."""
    sim.skews[node] -= step


def clock_kept(sim: Sim, node: str, step: float) -> None:
    """The wall clock was set; the agent's clock goes on."""
    sim.shifts[node] = step


PARTIES = pytest.mark.parametrize("party", [agent_restarted, clock_followed, clock_kept])


def sampled(sim: Sim, seconds: float) -> int:
    """How often stacks are asked for meanwhile."""
    before = len(sim.actions)
    sim.run(seconds)
    return sum(isinstance(action, TakeStacks) for action in sim.actions[before:])


def found_after(sim: Sim) -> float:
    """Seconds until a hang is named, from its beginning."""
    begun = sim.now
    sim.stick(2)
    sim.run(60)
    assert sim.named() == [2]
    (incident,) = sim.incidents()
    assert incident.confirmed_at is not None
    assert incident.suspected_at >= begun
    return incident.confirmed_at - begun


@functools.cache
def usual(attached: bool) -> tuple[int, float]:
    """The same job without a step: how often it is sampled in 30 s, and seconds to its verdict."""
    sim = Sim(attached=attached)
    sim.run(60)
    return sampled(sim, 30), found_after(sim)


@ATTACHED
@PARTIES
@NODES
@STEPS
def test_a_healthy_job_is_left_alone_and_a_hang_is_found_as_fast(
    attached: bool, party: Party, nodes: list[str], step: float
) -> None:
    sim = Sim(attached=attached)
    sim.run(60)
    for node in nodes:
        party(sim, node, step)
    samples, seconds = usual(attached)
    assert sampled(sim, 30) == samples
    assert sim.incidents() == ()
    assert sim.engine.status(sim.now).state == "healthy"
    assert found_after(sim) == pytest.approx(seconds, abs=1.0)


@PARTIES
@STEPS
def test_the_hang_lasts_while_a_clock_is_set(party: Party, step: float) -> None:
    sim = Sim()
    sim.run(60)
    sim.stick(2)
    sim.run(5)
    party(sim, "n1", step)
    sim.run(40)
    assert sim.named() == [2]


@STEPS
def test_who_ended_first_is_told_across_agents_that_began_anew(step: float) -> None:
    sim = Sim()
    sim.run(60)
    sim.restart_agent("n0", -step)
    sim.run(3)
    sim.end(0, signal=11)
    sim.run(0.5)
    sim.end(5, code=1, words="RuntimeError: Connection reset by peer")
    sim.run(15)
    assert sim.named() == [0]


def view_of(sim: Sim, node: str) -> NodeState:
    return sim.engine.view.nodes[node]


@pytest.mark.parametrize("pause", [3.0, HOUR])
def test_a_machine_that_stood_still_is_on_our_time_again(pause: float) -> None:
    """A virtual machine was paused: its clock goes on where it stood."""
    sim = Sim()
    sim.run(60)
    sim.skews["n1"] += pause
    sim.run(OFFSETS + 1)
    node = view_of(sim, "n1")
    assert node.last is not None
    assert node.last[1] + node.offset == pytest.approx(sim.now, abs=1.1)


def test_a_snapshot_that_was_long_under_way_moves_no_clock() -> None:
    node = Sim().nodes[0]
    view = NodeState(node=node, joined_at=1000.0)
    for number in range(1, 60):
        late = 4.0 if number % 10 == 0 else 0.01
        view.apply(
            Snapshot(node=node, time=1000.0 + number, sequence=number), 1000.0 + number + late
        )
    assert view.offset < 0.2


def test_a_snapshot_that_comes_twice_moves_no_clock() -> None:
    """A relay handed it on, and did not say so in time."""
    node = Sim().nodes[0]
    view = NodeState(node=node, joined_at=1000.0)
    told = Snapshot(node=node, time=1000.0, sequence=1)
    view.apply(told, 1000.01)
    view.apply(told, 1006.0)
    assert view.offset == pytest.approx(0.01)


def asks(sim: Sim, seconds: float) -> int:
    before = len(sim.actions)
    sim.run(seconds)
    return sum(isinstance(action, AskArrivals) for action in sim.actions[before:])


def test_recorders_are_not_compared_over_a_clock_that_was_set() -> None:
    sim = Sim()
    sim.run(60)
    assert asks(sim, 130) > 0
    sim.shifts["n1"] = HOUR
    assert asks(sim, 130) == 0


def test_ranks_stamp_by_the_wall_clock_of_their_node() -> None:
    sim = Sim(clock_skew=5.0)
    sim.run(60)
    sim.shifts["n1"] = -HOUR
    sim.run(2)
    job = sim.engine.view.jobs["job", 0]
    found = offsets(sim.engine.view, job)
    assert set(found) == {2, 3}
    assert found[2] == pytest.approx(HOUR + 5.0, abs=0.1)

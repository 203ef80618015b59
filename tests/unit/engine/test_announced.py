"""Nodes whose end was announced: what ends with them is nobody's fault."""

from __future__ import annotations

import pytest

from ray_sentinel.engine.events import NodeDraining, NodeLeft
from tests.support.engine_sim import ATTACHED, Sim


def drained(attached: bool = True) -> Sim:
    """A job of six ranks on three nodes; n1, with ranks 2 and 3, begins to be drained."""
    sim = Sim(attached=attached)
    sim.run(30)
    sim.feed(NodeDraining(time=sim.now, node_id="n1", deadline=sim.now + 30))
    return sim


@ATTACHED
def test_killed_with_a_drained_node_and_the_others_fall(attached: bool) -> None:
    sim = drained(attached)
    sim.run(5)
    for number in (2, 3):
        sim.end(number, signal=9)
    sim.run(3)
    for number in (0, 1):
        sim.end(number, code=1, words="RuntimeError: Connection closed by peer")
    for number in (4, 5):
        sim.end(number, signal=9)
    sim.run(30)
    assert sim.incidents() == ()


def test_a_drained_node_that_is_taken_away_is_not_lost() -> None:
    sim = drained()
    sim.run(20)
    for number in (2, 3):
        sim.rank(number).exited = True
    sim.dead_nodes.add("n1")
    sim.run(12)
    sim.feed(NodeLeft(time=sim.now, node_id="n1", expected=False, reason="unexpectedly"))
    for number in (0, 1, 4, 5):
        sim.end(number, code=1, words="RuntimeError: Connection closed by peer")
    sim.run(60)
    assert sim.incidents() == ()
    jobs = sim.engine.status(sim.now).jobs
    assert jobs[0].ended


def test_what_waits_for_a_rank_that_left_hangs_and_nobody_is_to_blame() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(2, signal=9)
    sim.run(1)  # only now it is heard of
    sim.feed(NodeDraining(time=sim.now, node_id="n1"))
    sim.run(60)
    assert sim.named() == []
    (incident,) = sim.incidents()
    assert incident.kind == "unknown"
    assert "rank 2 left with nodes that were taken away as announced" in incident.summary


def test_a_rank_that_died_long_before_the_drain_stays_named() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(2, signal=9)
    sim.run(10)
    sim.feed(NodeDraining(time=sim.now, node_id="n1"))
    sim.run(30)
    assert sim.named() == [2]


@pytest.mark.parametrize("number", [2, 0], ids=["on it", "elsewhere"])
def test_who_says_what_went_wrong_is_named_all_the_same(number: int) -> None:
    sim = drained()
    sim.run(5)
    sim.end(number, code=1, words="ValueError: no such batch")
    sim.run(30)
    assert sim.named() == [number]


def test_a_kill_long_after_the_departure_is_named() -> None:
    sim = Sim(world=3)
    sim.run(30)
    sim.feed(NodeDraining(time=sim.now, node_id="n2"))
    sim.end(2, signal=9)
    sim.ranks.pop()  # the others go on without it
    sim.run(40)
    assert sim.incidents() == ()
    sim.end(1, signal=9)
    sim.run(10)
    assert sim.named() == [1]

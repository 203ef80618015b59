"""A job whose steps do not end: whether its ranks stand still, or are at work of their own."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from ray_sentinel.model.stacks import StackFact
from tests.support.engine_sim import ATTACHED, Sim, SimRank


def evaluating(sim: Sim) -> None:
    """From now on all ranks compute on their own, at another place at each look."""
    places = count()
    sim.held = True
    for rank in sim.ranks:
        rank.activity, rank.waits = "compute", False

    def look(rank: SimRank) -> StackFact:
        where = ("main (train.py:1)", f"layer{next(places)} (model.py:7)")
        return msgspec.structs.replace(sim.fact(rank), signature=where)

    sim.stack_answer = look


def compute(sim: Sim, seconds: float, share: float = 0.7) -> None:
    for _ in range(int(2 * seconds)):
        for rank in sim.ranks:
            rank.cpu += 0.5 * share
            rank.switches += 20
        sim.run(0.5)


@ATTACHED
@pytest.mark.parametrize("share", [0.7, 1.0], ids=["in turns", "always"])
def test_an_evaluation_that_nobody_declares_is_no_stall(attached: bool, share: float) -> None:
    sim = Sim(world=4, nodes=2, attached=attached)
    sim.run(120)
    evaluating(sim)
    compute(sim, 200, share)
    assert sim.incidents() == ()
    assert sim.engine.status(sim.now).state != "stalled"


def test_a_loop_on_the_cpu_that_is_mostly_at_one_line_is_no_stall() -> None:
    sim = Sim(world=4, nodes=2)
    sim.run(120)
    evaluating(sim)
    elsewhere = sim.stack_answer
    looks = count()
    sim.stack_answer = lambda rank: (elsewhere if next(looks) % 12 < 4 else sim.fact)(rank)
    compute(sim, 200, 1.0)
    assert sim.incidents() == ()


@ATTACHED
def test_a_job_that_stands_still_after_a_long_evaluation_is_a_stall(attached: bool) -> None:
    sim = Sim(world=4, nodes=2, attached=attached)
    sim.run(120)
    evaluating(sim)
    compute(sim, 600)
    sim.stack_answer = sim.fact
    for rank in sim.ranks:
        rank.where, rank.activity = ("main (train.py:1)", "recv (http.py:1)"), "network-wait"
    sim.run(180)
    assert (sim.named(), sim.incidents()[0].kind) == ([], "stall")


@pytest.mark.parametrize("period", [2, 3])
def test_all_ranks_that_ask_a_service_again_and_again_are_a_stall(period: int) -> None:
    sim = Sim(world=4, nodes=2)
    sim.run(120)
    sim.held = True
    for rank in sim.ranks:
        rank.activity, rank.waits = "network-wait", False
    looks = count()

    def look(rank: SimRank) -> StackFact:
        again = ("fetch (data.py:3)", "sleep (data.py:9)")
        asks = ("fetch (data.py:3)", "get (http.py:5)", "send (http.py:7)")
        where = asks if next(looks) // 4 % period == 0 else again
        return msgspec.structs.replace(sim.fact(rank), signature=where)

    sim.stack_answer = look
    sim.run(70)
    assert (sim.named(), sim.incidents()[0].kind) == ([], "stall")

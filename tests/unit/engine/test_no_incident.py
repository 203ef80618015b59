"""What is no incident, or nobody's fault: ends, pauses, long steps, stalls of all."""

from __future__ import annotations

import pytest

from ray_sentinel.engine.events import NodeLeft
from tests.support.engine_sim import ATTACHED, Sim


@ATTACHED
def test_a_healthy_job_raises_nothing(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(120)
    assert sim.engine.incidents(everything=True) == ()
    told = sim.engine.status(sim.now)
    state, sentence, jobs = told.state, told.verdict, told.jobs
    assert (state, jobs[0].state) == ("healthy", "healthy")
    assert "is well" in sentence


@ATTACHED
def test_a_job_that_ends_is_no_incident(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    for number in range(6):
        sim.end(number, code=0)
    sim.run(60)
    assert sim.engine.incidents(everything=True) == ()


@ATTACHED
def test_a_cancelled_job_is_no_incident(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    for number in range(6):
        sim.end(number, signal=15)
    sim.run(60)
    assert sim.incidents() == ()


def test_a_12_second_step_raises_nothing() -> None:
    sim = Sim(step_seconds=1.0)
    sim.run(30)
    sim.stick(3)
    sim.run(11.5)
    sim.rank(3).stuck = False
    sim.run(60)
    assert sim.incidents() == ()


def test_a_long_checkpoint_raises_nothing() -> None:
    sim = Sim(step_seconds=1.0)
    sim.run(30)
    sim.stick(0, phase="checkpoint", phase_since=sim.now, activity="storage-wait")
    sim.run(40)
    assert "checkpoint for" in sim.engine.status(sim.now).jobs[0].expected
    sim.rank(0).stuck, sim.rank(0).phase, sim.rank(0).phase_since = False, "train", sim.now
    sim.run(60)
    assert sim.engine.incidents(everything=True) == ()


def test_a_slow_rank_is_not_called_hung() -> None:
    sim = Sim(step_seconds=0.5)
    sim.run(30)
    sim.stick(2, activity="compute")
    looks = iter(range(1000))
    sim.stack_answer = lambda rank: (
        sim.fact(rank)
        if rank.number != 2
        else __import__("msgspec").structs.replace(
            sim.fact(rank), signature=("main", f"loop (x.py:{next(looks)})")
        )
    )
    sim.run(20)
    sim.rank(2).stuck = False
    sim.run(10)
    assert sim.incidents() == ()


@ATTACHED
def test_a_pause_of_all_that_ends_raises_nothing(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.held = True
    for rank in sim.ranks:
        rank.where, rank.activity, rank.waits = ("main", "recv (http.py:1)"), "network-wait", False
    sim.run(25)
    assert sim.engine.status(sim.now).state == "slow"
    sim.held = False
    sim.run(20)
    assert sim.incidents() == ()


@ATTACHED
def test_a_stall_of_all_names_nobody_and_resolves(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.held = True
    for rank in sim.ranks:
        rank.where, rank.activity, rank.waits = ("main", "recv (http.py:1)"), "network-wait", False
    sim.run(90)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind, incident.severity) == ([], "stall", "warning")
    assert sim.engine.status(sim.now).state == "stalled"
    sim.held = False
    sim.run(10)
    assert sim.incidents()[0].state == "resolved"


@ATTACHED
def test_a_paused_job_is_no_incident(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    for number in range(6):
        sim.stick(number, state="T")
    sim.run(120)
    assert sim.incidents() == ()


def test_a_drained_node_is_no_incident() -> None:
    sim = Sim()
    sim.run(30)
    for number in (2, 3):
        sim.end(number, signal=15)
    sim.dead_nodes.add("n1")
    sim.feed(NodeLeft(time=sim.now, node_id="n1", expected=True))
    for number in (0, 1, 4, 5):
        sim.end(number, signal=15)
    sim.run(30)
    assert sim.incidents() == ()


def test_exits_of_a_job_that_nobody_saw_are_history() -> None:
    sim = Sim()
    for rank in sim.ranks:
        rank.exited = True
    for number in range(6):
        sim.end(number, signal=9)
    sim.run(30)
    assert sim.engine.incidents(everything=True) == ()
    assert sim.engine.status(sim.now).jobs == ()


@pytest.mark.parametrize("first", [2.0, 7.0, 9.5])
def test_ranks_of_a_job_that_is_over_leave_one_after_the_other(first: float) -> None:
    """On a crowded machine each takes its time for that; nobody waits for who has left, and rank 0
    writes the model still."""
    sim = Sim()
    sim.run(30)
    for rank in sim.ranks:
        sim.stick(rank.number, where=("main (t.py:1)", "destroy (d.py:9)"), activity="unknown")
        rank.waits = None

    def let(seconds: float) -> None:
        for half in range(int(2 * seconds)):
            sim.rank(0).where = ("main (t.py:1)", f"export (t.py:{half % 5})")
            for rank in sim.ranks:
                rank.switches, rank.cpu = rank.switches + 9, rank.cpu + 0.05
            sim.run(0.5)

    let(first)
    sim.end(4, code=0)
    let(18 - first)
    for number in (1, 2, 3, 5):
        sim.end(number, code=0)
        let(2)
    sim.end(0, code=0)
    let(20)
    assert sim.incidents() == ()


def test_who_left_while_the_others_wait_for_it_is_named() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(4, code=0)
    sim.run(30)
    assert sim.named() == [4]

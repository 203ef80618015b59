"""What is no incident, or nobody's fault: ends, pauses, long steps, stalls of all."""

from __future__ import annotations

from ray_sentinel.engine.events import NodeLeft
from tests.support.engine_sim import ATTACHED, Sim


@ATTACHED
def test_a_healthy_job_raises_nothing(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(120)
    assert sim.engine.incidents(everything=True) == ()
    state, sentence, jobs = sim.engine.status(sim.now)
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
    assert "checkpoint for" in sim.engine.status(sim.now)[2][0].expected
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
    assert sim.engine.status(sim.now)[0] == "slow"
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
    assert sim.engine.status(sim.now)[0] == "stalled"
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
    assert sim.engine.status(sim.now)[2] == ()

"""Whole scenarios through the engine: who is named, when, and who is not."""

from __future__ import annotations

import pytest

from ray_sentinel.config import load
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import DumpAsked, NodeLeft
from ray_sentinel.engine.replay import decode, header, replay
from ray_sentinel.errors import ConfigError, InputError
from ray_sentinel.model.recorder import RecorderCulprit, RecorderFacts
from tests.support.engine_sim import Sim

ATTACHED = pytest.mark.parametrize("attached", [True, False], ids=["attached", "not-attached"])


@ATTACHED
def test_a_healthy_job_raises_nothing(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(120)
    assert sim.engine.incidents(everything=True) == ()
    state, sentence, jobs = sim.engine.status(sim.now)
    assert (state, jobs[0].state) == ("healthy", "healthy")
    assert "is well" in sentence


@ATTACHED
@pytest.mark.parametrize("step_seconds", [0.1, 1.0])
def test_a_sleeping_rank_is_named_within_15_seconds(attached: bool, step_seconds: float) -> None:
    sim = Sim(attached=attached, step_seconds=step_seconds)
    sim.run(30)
    sim.stick(4)
    began = sim.now
    sim.run(40)
    assert sim.named() == [4]
    (incident,) = sim.incidents()
    assert incident.kind == "host-stuck"
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 15
    assert incident.state == "explained"
    assert sim.engine.status(sim.now)[0] == "hung"


@ATTACHED
def test_a_stopped_rank_is_named_within_5_seconds(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.stick(2, state="T")
    began = sim.now
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([2], "rank-stopped")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 5


@ATTACHED
def test_a_killed_rank_is_named_and_its_peers_are_echoes(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.end(5, signal=9)
    began = sim.now
    sim.run(1)
    for number in range(5):
        sim.end(number, code=1, words="RuntimeError: Connection closed by peer [10.0.0.2]")
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([5], "rank-dead")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 5
    assert incident.state == "resolved"


def test_a_crash_is_named_also_where_nobody_attached() -> None:
    sim = Sim(attached=False)
    sim.run(30)
    sim.end(1, code=1)
    sim.run(1)
    for number in (0, 2, 3, 4, 5):
        sim.end(number, code=1)
    sim.run(10)
    assert sim.named() == [1]


def test_an_echo_that_comes_first_is_not_blamed() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(0, code=1, words="RuntimeError: Connection reset by peer")
    sim.run(0.5)
    sim.end(3, code=1, words="ValueError: bad batch")
    sim.run(10)
    assert sim.named() == [3]


def test_peers_that_abort_at_once_are_echoes_of_a_killed_rank() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(5, signal=9)
    sim.end(2, signal=6)
    sim.end(4, signal=6)
    sim.run(10)
    assert sim.named() == [5]


def test_ranks_that_are_killed_together_are_named_together() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(1, signal=9)
    sim.end(4, signal=9)
    sim.run(10)
    assert sim.named() == [1, 4]


def test_what_another_agent_tells_of_a_foreign_rank_is_corrected_by_its_own() -> None:
    sim = Sim()
    sim.run(30)
    sim.end(5, signal=9)
    sim.end(4)  # nobody knows how: from the record alone
    sim.end(4, signal=6)
    sim.run(10)
    assert sim.named() == [5]
    assert sim.incidents()[0].summary.startswith("rank 5 on host2 was killed by SIGKILL")


def test_a_peer_that_falls_over_a_dead_rank_is_not_named_for_its_stack() -> None:
    sim = Sim(attached=False)
    sim.run(30)
    sim.end(4, signal=9)
    sim.stick(1, where=("main (train.py:1)", "excepthook (sys.py:1)"), activity="unknown")
    sim.run(10)
    assert sim.named() == [4]


def test_only_echoes_name_nobody() -> None:
    sim = Sim()
    sim.run(30)
    for number in range(6):
        sim.end(number, code=1, words="DistBackendError: NCCL error")
    sim.run(10)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([], "unknown")


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


def test_a_held_gil_is_named_within_5_seconds() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(1, interpreter="gil-held", activity="unknown")
    began = sim.now
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "gil-held")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 5


@pytest.mark.parametrize("spinning", [True, False])
def test_a_held_gil_is_seen_from_outside(spinning: bool) -> None:
    sim = Sim(attached=False)
    sim.run(30)
    sim.stick(1, holds_gil=True, activity="unknown", waits=None, spinning=spinning)
    began = sim.now
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([1], "gil-held")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 6


@ATTACHED
def test_a_rank_in_the_kernel_is_named(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(30)
    sim.stick(0, state="D", wchan="rpc_wait_bit_killable")
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([0], "kernel-blocked")
    assert incident.verdict is not None
    assert "rpc_wait_bit_killable" in incident.verdict.culprits[0].reason


@ATTACHED
def test_two_culprits_are_both_named(attached: bool) -> None:
    sim = Sim(world=8, attached=attached)
    sim.run(30)
    sim.stick(1)
    sim.stick(6, activity="input-wait")
    sim.run(30)
    assert sim.named() == [1, 6]


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


def test_the_flight_recorder_outweighs_the_stacks() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(4, activity="collective-wait", waits=True)
    sim.recorder = RecorderFacts(
        kind="collective-mismatch",
        culprits=(RecorderCulprit(rank=4, kind="collective-mismatch", reason="in reduce"),),
        confidence=0.9,
    )
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([4], "collective-mismatch")


def test_all_in_one_collective_is_not_blamed_on_anybody() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(4, activity="collective-wait", waits=True,
              where=("main (train.py:1)", "all_reduce (distributed_c10d.py:99)"))  # fmt: skip
    sim.run(60)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([], "unknown")


def test_a_lost_node_is_named_and_echoes_are_not() -> None:
    sim = Sim()
    sim.run(30)
    sim.dead_nodes.add("n1")
    for rank in sim.ranks:
        rank.stuck = rank.node == "n1"
    sim.run(1)
    for number in (0, 1, 4, 5):
        sim.end(number, code=1)
    began = sim.now
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([2, 3], "node-lost")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 6


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


def test_a_hang_that_ends_resolves_and_a_second_one_is_new() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(4)
    sim.run(20)
    sim.rank(4).stuck = False
    sim._done_at = sim.now
    sim.run(30)
    assert [incident.state for incident in sim.incidents()] == ["resolved"]
    sim.stick(1)
    sim.run(60)
    assert len(sim.incidents()) == 2
    last = sim.incidents()[-1].verdict
    assert last is not None
    assert [culprit.rank for culprit in last.culprits] == [1]


def test_ranks_that_a_watchdog_kills_after_a_hang_are_echoes() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(4)
    sim.run(20)
    for number in (0, 1, 2, 3, 5):
        sim.end(number, signal=6)
    sim.run(10)
    assert sim.named() == [4]


def test_clocks_minutes_apart_change_nothing() -> None:
    sim = Sim(clock_skew=300.0)
    sim.run(30)
    sim.stick(2)
    began = sim.now
    sim.run(20)
    (incident,) = sim.incidents()
    assert sim.named() == [2]
    assert 8 <= (incident.confirmed_at or 0) - began <= 15


def test_a_dump_by_hand_is_captured_and_over() -> None:
    sim = Sim()
    sim.run(30)
    sim.feed(DumpAsked(time=sim.now))
    sim.run(5)
    (incident,) = sim.incidents()
    assert (incident.kind, incident.state, incident.severity) == ("asked", "resolved", "info")
    assert sim.engine.status(sim.now)[0] == "healthy"


def test_the_log_replays_to_the_same_incidents() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2)
    sim.run(20)
    torn = [header(), *sim.log, sim.log[-1][:20]]
    engine, actions = replay(torn)
    assert engine.incidents() == sim.incidents()
    assert actions == sim.actions


def test_a_log_of_a_newer_version_is_refused() -> None:
    with pytest.raises(InputError, match="version 99"):
        list(decode([b'{"log": "ray_sentinel events", "version": 99}']))


def test_unknown_rules_and_thresholds_are_named() -> None:
    with pytest.raises(ConfigError, match="hang\\.silent"):
        Engine(load(environ={}, overrides={"rules": {"hang.quiet": {}}}))
    with pytest.raises(ConfigError, match="seconds"):
        Engine(load(environ={}, overrides={"rules": {"rank.stopped": {"secnods": 3}}}))


def test_a_disabled_rule_says_nothing() -> None:
    config = load(environ={}, overrides={"rules": {"rank.stopped": {"enabled": False}}})
    sim = Sim(config=config)
    sim.run(30)
    sim.stick(2, state="T")
    sim.run(8)
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

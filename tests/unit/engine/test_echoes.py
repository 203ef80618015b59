"""Ranks and nodes that end, and the echoes of it: the cause is named, and only the cause."""

from __future__ import annotations

from tests.support.engine_sim import ATTACHED, Sim


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


def test_ranks_that_a_watchdog_kills_after_a_hang_are_echoes() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(4)
    sim.run(20)
    for number in (0, 1, 2, 3, 5):
        sim.end(number, signal=6)
    sim.run(10)
    assert sim.named() == [4]

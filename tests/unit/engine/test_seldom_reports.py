"""Nodes that report every two seconds, as those of a large cluster do while nothing happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ray_sentinel.engine.events import SnapshotReceived
from tests.support.engine_sim import ATTACHED, Sim

SELDOM = 2.0


def stops(sim: Sim) -> None:
    sim.stick(4, state="T")


def sleeps(sim: Sim) -> None:
    sim.stick(4)


def is_killed(sim: Sim) -> None:
    sim.end(4, signal=9)


@ATTACHED
@pytest.mark.parametrize(
    ("trouble", "kind", "seconds"),
    [(stops, "rank-stopped", 5), (sleeps, "host-stuck", 17), (is_killed, "rank-dead", 5)],
)
def test_a_culprit_is_named_as_elsewhere(
    trouble: Callable[[Sim], None], kind: str, seconds: float, attached: bool
) -> None:
    sim = Sim(attached=attached, interval=SELDOM)
    sim.run(30)
    trouble(sim)
    began = sim.now
    sim.run(25)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([4], kind)
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= seconds


def test_a_lost_node_is_named() -> None:
    sim = Sim(interval=SELDOM)
    sim.run(30)
    sim.dead_nodes.add("n1")
    for rank in sim.ranks:
        rank.stuck = rank.node == "n1"
    began = sim.now
    sim.run(20)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([2, 3], "node-lost")
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - began <= 3 * SELDOM + 3.0


@pytest.mark.parametrize("interval", [1.0, SELDOM])
@pytest.mark.parametrize("how", [{"signal": 11}, {"signal": 6}, {"code": 1}])
@pytest.mark.parametrize("died", [30.0, 30.5, 31.0, 31.5])
@pytest.mark.parametrize("after", [0.5, 1.5, 3.0])
def test_ranks_that_fall_because_a_node_is_lost_are_not_named(
    interval: float, how: dict[str, int], died: float, after: float
) -> None:
    sim = Sim(interval=interval)
    sim.run(died)
    sim.dead_nodes.add("n1")
    for rank in sim.ranks:
        rank.stuck = rank.node == "n1"
    sim.run(after)
    for number in (0, 1, 4, 5):
        sim.end(number, **how)  # type: ignore[arg-type]
    sim.run(25)
    (incident,) = sim.incidents()
    assert (sim.named(), incident.kind) == ([2, 3], "node-lost")


@ATTACHED
@pytest.mark.parametrize("step_seconds", [0.1, 1.0, 4.0])
def test_a_healthy_job_is_left_alone(step_seconds: float, attached: bool) -> None:
    sim = Sim(step_seconds=step_seconds, attached=attached, interval=SELDOM)
    sim.run(300)
    assert sim.engine.incidents(everything=True) == ()


def test_nodes_report_half_as_often() -> None:
    counts = []
    for interval in (1.0, SELDOM):
        sim = Sim(interval=interval)
        sim.run(60)
        counts.append(sum(isinstance(event, SnapshotReceived) for event in sim.log))
    assert counts[1] <= 0.55 * counts[0]

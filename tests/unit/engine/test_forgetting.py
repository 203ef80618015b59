"""A coordinator lives as long as the cluster: what belongs to jobs and nodes goes with them."""

from __future__ import annotations

import pytest

from ray_sentinel.engine.actions import ProbeNode
from ray_sentinel.engine.cluster import MOST_BOOKS
from ray_sentinel.engine.events import (
    NodeJoined,
    NodeLeft,
    PhasesRecalled,
    SnapshotReceived,
    StragglersFound,
    Tick,
)
from ray_sentinel.engine.phases import MOST_PHASES, PhaseBook
from ray_sentinel.engine.telemetry.series import EVERY, KEPT_SECONDS, SLACK
from ray_sentinel.model.identity import Node
from ray_sentinel.model.progress import Snapshot
from ray_sentinel.model.straggler import StragglerFacts
from tests.support.engine_sim import Sim
from tests.support.samples import sampled

LONG = 700.0
"""Seconds after which what has ended is forgotten."""


def lose_node(sim: Sim, node: str, *, expected: bool = False) -> None:
    """All at once: the machine is gone, and nobody tells how its ranks ended."""
    sim.dead_nodes.add(node)
    for rank in sim.ranks:
        rank.exited = rank.exited or rank.node == node
    sim.feed(NodeLeft(time=sim.now, node_id=node, expected=expected))


def leave(sim: Sim) -> None:
    """The cluster is scaled down to its head, which has no ranks."""
    for node in sim.nodes[1:]:
        sim.dead_nodes.add(node.id)
        sim.feed(NodeLeft(time=sim.now, node_id=node.id, expected=True))


def last_report(sim: Sim, node: Node) -> SnapshotReceived:
    """A report that was under way when the node left."""
    return SnapshotReceived(time=sim.now, snapshot=Snapshot(node=node, time=sim.now, sequence=999))


@pytest.mark.parametrize("attached", [True, False])
def test_nothing_of_jobs_and_nodes_that_are_gone_is_kept(attached: bool) -> None:
    sim = Sim(attached=attached)
    gauges = {'hw_gpu_power_watts{gpu="0"}': 600.0, 'hw_gpu_utilization_ratio{gpu="0"}': 1.0}
    for number in range(40):
        sim.run(2)
        for node in sim.nodes:
            ranks = tuple(sim.see(rank) for rank in sim.ranks if rank.node == node.id)
            seen = Snapshot(
                node=node, time=sim.now, sequence=number, samples=sampled(gauges), ranks=ranks
            )
            sim.feed(SnapshotReceived(time=sim.now, snapshot=seen))
    sim.stick(3)
    sim.run(60)
    for number in range(6):
        sim.end(number, code=0)
    sim.run(5)
    leave(sim)
    sim.run(LONG)
    view, engine = sim.engine.view, sim.engine
    assert view.jobs == {}
    assert list(view.nodes) == ["n0"]
    assert list(view.telemetry.nodes) == ["n0"]
    assert {node for node, _ in (*view.gpu_levels.work, *view.gpu_levels.rest)} <= {"n0"}
    scalars = view.scalars
    assert not scalars.tracks
    assert not scalars.steps
    assert not scalars.saves
    assert not scalars.apart
    assert not scalars.saving
    assert engine.state.sampled == {}
    assert engine.state.stragglers.next_at == {}
    assert all(incident.state in ("resolved", "dismissed") for incident in sim.incidents())


def test_stragglers_that_are_told_of_after_their_job_are_not_kept() -> None:
    sim = Sim()
    sim.run(2)
    facts = StragglerFacts(kind="none")
    sim.feed(StragglersFound(time=sim.now, job="earlier", attempt=0, facts=facts))
    sim.run(2)
    assert list(sim.engine.state.stragglers.found) == []


def test_a_report_that_was_under_way_when_its_node_left_does_not_bring_it_back() -> None:
    sim = Sim()
    sim.run(30)
    for number in range(6):
        sim.end(number, code=0)
    leave(sim)
    sim.feed(last_report(sim, sim.nodes[1]))
    sim.actions.clear()
    sim.run(30)
    node = sim.engine.view.nodes["n1"]
    assert node.left_at is not None
    assert node.expected_leave
    assert not [action for action in sim.actions if isinstance(action, ProbeNode)]


def test_an_idle_node_whose_agent_was_taken_off_is_not_probed_for_days() -> None:
    sim = Sim()
    sim.run(30)
    for number in (2, 3):
        sim.end(number, code=0)
    sim.dead_nodes.add("n1")
    sim.actions.clear()
    sim.run(LONG)
    assert not [action for action in sim.actions if isinstance(action, ProbeNode)]
    assert "n1" in sim.engine.view.nodes, "the job that goes on ran there"


def test_a_node_that_ray_shows_again_is_there_again() -> None:
    sim = Sim()
    sim.run(30)
    sim.feed(NodeLeft(time=sim.now, node_id="n1", expected=True, reason="Ray forgot it"))
    sim.feed(NodeJoined(time=sim.now, node=sim.nodes[1]))
    sim.run(5)
    node = sim.engine.view.nodes["n1"]
    assert (node.left_at, node.expected_leave, node.leave_reason) == (None, False, "")
    assert sim.incidents() == ()


@pytest.mark.parametrize("expected", [True, False])
def test_a_job_that_went_with_its_node_has_ended(expected: bool) -> None:
    sim = Sim()
    sim.run(30)
    lose_node(sim, "n1", expected=expected)
    sim.run(5)
    for number in (0, 1, 4, 5):
        sim.end(number, code=1, words="ConnectionError: Connection reset by peer")
    sim.run(90)
    assert [job.ended for job in sim.engine.status(sim.now).jobs] == [True]
    assert {incident.state for incident in sim.incidents()} <= {"resolved"}
    assert "node-lost" in {i.kind for i in sim.incidents()} or expected
    sim.run(LONG)
    assert sim.engine.view.jobs == {}


def test_ranks_that_went_with_their_node_have_not_left_in_peace() -> None:
    sim = Sim(nodes=2)
    sim.run(30)
    lose_node(sim, "n1")
    sim.run(70)
    (job,) = sim.engine.view.jobs.values()
    assert len(job.live) == 3
    assert not job.ending()
    assert not any(view.left_in_peace for view in job.ranks.values())


def test_processes_that_others_have_replaced_long_ago_are_forgotten() -> None:
    sim = Sim()
    sim.run(10)
    for _ in range(20):
        for rank in sim.ranks:
            rank.exited = True
            sim.end(rank.number, code=0)
            rank.exited, rank.pid, rank.started = False, rank.pid + 100, sim.now
        sim.run(60)
    (job,) = sim.engine.view.jobs.values()
    assert len(job.live) == 6
    assert len(job.ranks) <= 6 * 13
    assert len(job.exits) <= 6 * 13
    assert len(job.exits.told) <= 6 * 13
    assert len(job.phases) <= 6 * 13
    assert not job.ending(), "every rank is there"


def test_the_phases_of_the_last_jobs_are_kept() -> None:
    sim = Sim()
    for number in range(3 * MOST_BOOKS):
        learned = {f"earlier-{number}": {"checkpoint": (40.0, 60.0)}}
        sim.feed(PhasesRecalled(time=sim.now, phases=learned))
    sim.run(20)
    known = sim.engine.view.learned()
    assert len(sim.engine.view.books) == MOST_BOOKS
    assert f"earlier-{3 * MOST_BOOKS - 1}" in known
    assert "job" in sim.engine.view.books, "that of a job that runs is never dropped"


def test_phases_that_are_named_anew_each_time_are_bounded() -> None:
    book = PhaseBook()
    for epoch in range(3 * MOST_PHASES):
        book.add(f"epoch-{epoch}", 5.0)
        book.add("checkpoint", 30.0)
    assert len(book.seen) == MOST_PHASES
    assert book.budget("checkpoint") == 90.0
    assert "checkpoint" in book.learned()


def test_series_that_are_no_longer_sent_are_forgotten() -> None:
    sim = Sim(world=1, nodes=1)
    kept = int(KEPT_SECONDS / EVERY)
    for number in range(2 * kept):
        sim.now += 4.0
        device = f'hw_net_tx_bytes_total{{device="veth{number}"}}'
        seen = Snapshot(
            node=sim.nodes[0],
            time=sim.now,
            sequence=number,
            samples=sampled({device: 1.0, "hw_load1": 1.0}),
        )
        sim.feed(SnapshotReceived(time=sim.now, snapshot=seen))
        sim.feed(Tick(time=sim.now))
    node = sim.engine.view.telemetry.of("n0")
    assert len(node.of_name("hw_net_tx_bytes_total")) <= kept + SLACK + 16
    assert len(node.of_name("hw_load1")) == 1

"""Elastic jobs: each node counts restarts for itself, and the world changes its size."""

from __future__ import annotations

from ray_sentinel.engine.jobs import JobView
from tests.support.engine_sim import ATTACHED, Sim


def view_of(sim: Sim, attempt: int) -> JobView:
    return sim.engine.view.jobs["job", attempt]


def restart(sim: Sim, *told: int) -> None:
    """All processes end as their launchers want it, and others begin, told these attempts."""
    for rank in sim.ranks:
        if not rank.exited:
            sim.end(rank.number, signal=15)
    del sim.ranks[len(told) :]
    for rank, attempt in zip(sim.ranks, told, strict=True):
        rank.pid += 100
        rank.attempt, rank.exited, rank.stuck = attempt, False, False
        rank.durations, rank.step_ended_at, rank.phase_since = [], None, sim.now


@ATTACHED
def test_ranks_told_different_attempts_are_one_job(attached: bool) -> None:
    """The first two failed once before; the node of the others joined later."""
    sim = Sim(world=4, nodes=2, attached=attached)
    restart(sim, 1, 1, 0, 0)
    sim.run(30)
    running = [job for job in sim.engine.status(sim.now).jobs if not job.ended]
    assert [(job.attempt, job.world_size, len(job.ranks)) for job in running] == [(1, 4, 4)]
    sim.stick(2)
    sim.run(40)
    assert sim.named() == [2]
    (incident,) = sim.incidents()
    assert incident.attempt == 1


@ATTACHED
def test_the_end_of_a_rank_that_was_told_another_attempt(attached: bool) -> None:
    sim = Sim(world=4, nodes=2, attached=attached)
    restart(sim, 1, 1, 0, 0)
    sim.run(20)
    sim.end(3, signal=9)
    sim.run(5)
    assert sim.named() == [3]
    assert sim.incidents()[0].attempt == 1


def test_what_is_left_of_an_old_attempt_is_no_part_of_the_new_one() -> None:
    sim = Sim(world=4, nodes=2)
    sim.run(90)
    for rank in sim.ranks[:3]:
        rank.attempt, rank.pid = 1, rank.pid + 100
    sim.run(5)
    assert [view.rank.id.rank for view in view_of(sim, 1).live] == [0, 1, 2]
    assert [view.rank.id.rank for view in view_of(sim, 0).live] == [3]


def test_what_is_no_whole_world_is_not_brought_together() -> None:
    sim = Sim(world=3, nodes=3)
    sim.rank(1).exited = True
    sim.rank(2).attempt = 1
    sim.run(5)
    assert [view.rank.id.rank for view in view_of(sim, 0).live] == [0]
    assert [view.rank.id.rank for view in view_of(sim, 1).live] == [2]


def test_a_smaller_world_under_the_same_attempt() -> None:
    """Such as below a supervisor that counts its own restarts only."""
    sim = Sim(world=4, nodes=2)
    sim.run(10)
    restart(sim, 0, 0)
    sim.run(20)
    (job,) = sim.engine.status(sim.now).jobs
    assert (job.attempt, job.world_size) == (0, 2)
    assert [rank.rank for rank in job.ranks] == [0, 1]
    assert sim.incidents() == ()
    sim.stick(1)
    sim.run(40)
    assert sim.named() == [1]


@ATTACHED
def test_a_failure_after_a_restart_that_nobody_counts(attached: bool) -> None:
    """A node joins: all processes are ended and begin anew under the same attempt."""
    sim = Sim(world=4, nodes=2, attached=attached)
    sim.run(20)
    restart(sim, 0, 0, 0, 0)
    sim.run(30)
    assert sim.incidents() == ()
    sim.end(2, signal=9)
    sim.run(5)
    assert sim.named() == [2]

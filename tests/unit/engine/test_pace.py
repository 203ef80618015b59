"""What a job's steps teach: each of them counts once, however many ranks tell of it."""

from __future__ import annotations

import pytest

from ray_sentinel.engine.durations import MEMORY
from tests.support.engine_sim import Sim


def pause(sim: Sim, seconds: float) -> None:
    """One long step of all: rank 0 is elsewhere meanwhile."""
    sim.stick(0, activity="sleep")
    sim.run(seconds)
    sim.rank(0).stuck = False
    usual, sim.step_seconds = sim.step_seconds, seconds
    sim.run(0.5)
    sim.step_seconds = usual


@pytest.mark.parametrize("world", [2, 32])
def test_a_jobs_steps_are_remembered_and_not_its_ranks(world: int) -> None:
    sim = Sim(world=world, nodes=2)
    sim.run(60)
    (job,) = sim.engine.view.jobs.values()
    assert 60 / sim.step_seconds - 10 <= len(job.pace) <= 60 / sim.step_seconds
    sim.run(MEMORY * sim.step_seconds)
    assert len(job.pace) == MEMORY


def test_one_long_step_is_no_habit_and_a_second_one_is() -> None:
    sim = Sim(world=6)
    sim.run(60)
    (job,) = sim.engine.view.jobs.values()
    usual = job.timeout()
    pause(sim, 8.0)
    sim.run(10)
    assert job.timeout() == usual
    pause(sim, 8.0)
    sim.run(10)
    assert job.timeout() == pytest.approx(12.0, abs=1.0)


def test_long_steps_that_come_again_are_known_however_many_ranks_there_are() -> None:
    sim = Sim(world=32, nodes=2)
    sim.run(60)
    for _ in range(3):
        pause(sim, 25.0)
        sim.run(40)
    before = len(sim.incidents())
    for _ in range(3):
        pause(sim, 25.0)
        sim.run(40)
    assert len(sim.incidents()) == before


def test_a_job_whose_ranks_were_replaced_goes_on_learning() -> None:
    sim = Sim(world=4, nodes=2)
    sim.run(60)
    (job,) = sim.engine.view.jobs.values()
    for rank in sim.ranks:
        rank.pid += 100
        rank.durations.clear()
    sim.run(5)
    known = len(job.pace)
    sim.run(10)
    assert len(job.pace) - known >= 18

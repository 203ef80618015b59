"""What ``status`` tells is taken at one moment, and made into lines while the engine goes on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.clock import FakeClock, SteadyClock
from ray_sentinel.engine.events import Tick
from ray_sentinel.engine.status import StatusPicture
from ray_sentinel.model.status import Status
from tests.support.engine_sim import ATTACHED, Sim


@ATTACHED
def test_what_happens_after_a_picture_was_taken_is_not_in_it(attached: bool) -> None:
    sim = Sim(attached=attached)
    sim.run(40)
    sim.stick(2)
    sim.run(30)
    sim.ranks[1].state = "T"
    sim.run(3)
    engine = sim.engine
    picture, told = StatusPicture(engine.state, sim.now), engine.status(sim.now)
    (job,) = told.jobs
    assert [rank.rank for rank in job.ranks] == list(range(6))
    assert job.ranks[1].state == "stopped"
    assert {rank.host for rank in job.ranks} == {"host0", "host1", "host2"}
    sim.ranks[1].state = "S"
    sim.rank(2).stuck = False
    sim.run(30)
    assert engine.status(sim.now) != told
    assert picture.status() == told


def test_events_are_taken_while_lines_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = Sim()
    sim.run(10)
    clock = SteadyClock(FakeClock(sim.now))
    subject = EngineLoop(sim.engine, clock, lambda action: None, None, 1 << 20)
    made = StatusPicture.status
    with ThreadPoolExecutor(1) as others:

        def while_others_feed(picture: StatusPicture) -> Status:
            others.submit(subject.feed, Tick(time=sim.now)).result(timeout=30.0)
            return made(picture)

        monkeypatch.setattr(StatusPicture, "status", while_others_feed)
        (job,) = subject.status().jobs
    assert len(job.ranks) == 6

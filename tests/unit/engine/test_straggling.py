"""Jobs that go on are looked at now and then, and what was found is said in status."""

from __future__ import annotations

import json

import msgspec

from ray_sentinel.actors.bundles.index import rendered
from ray_sentinel.config import Config, StragglersConfig
from ray_sentinel.engine.actions import AnyAction, AskArrivals
from ray_sentinel.engine.events import StragglersFound
from ray_sentinel.model.straggler import StragglerFacts
from tests.support.engine_sim import Sim


class SlowSim(Sim):
    """A simulated job whose recorders show ``facts``."""

    facts: StragglerFacts | None = None
    looks: list[float]

    def __init__(self, **how: object) -> None:
        super().__init__(**how)  # type: ignore[arg-type]
        self.looks = []

    def answer(self, action: AnyAction) -> None:
        if isinstance(action, AskArrivals):
            self.looks.append(self.now)
            event = StragglersFound(
                time=self.now + 0.2, job=action.job, attempt=action.attempt, facts=self.facts
            )
            self.pending.append((event.time, event))
        super().answer(action)


SLOW = StragglerFacts(kind="slow-rank", ranks=(3,), cost=0.25, confidence=0.9)


def test_a_straggler_is_told_in_status_with_its_cost_and_its_heat() -> None:
    sim = SlowSim()
    sim.facts = SLOW
    sim.run(200)
    told = sim.engine.status(sim.now)
    sentence = told.verdict
    (job,) = told.jobs
    assert len(sim.looks) == 3
    assert job.straggler is not None
    assert job.straggler.ranks == (3,)
    assert job.straggler.cost_percent == 25.0
    assert len(job.straggler.heat) == 3
    assert "rank 3 slows it down by 25 %" in sentence
    assert not sim.incidents()


def test_an_incident_knows_who_slowed_the_job_down_before() -> None:
    sim = SlowSim()
    sim.facts = msgspec.structs.replace(SLOW, evidence=("rank 3 is busy for 80 % of the time",))
    sim.run(200)
    sim.stick(3)
    sim.run(20)
    (incident,) = sim.incidents()
    assert incident.straggler is not None
    assert incident.straggler.ranks == (3,)
    files = rendered(incident)
    for name in ("report.md", "report.html"):
        text = files[name].decode()
        assert "Who slowed it down before" in text
        assert "rank 3 costs 25 % of the time (lately, in %: 25 25 25)" in text
        assert "rank 3 is busy for 80 % of the time" in text
    assert json.loads(files["incident.json"])["straggler"]["cost_percent"] == 25.0


def test_where_nobody_slowed_it_down_the_report_says_nothing_of_it() -> None:
    sim = SlowSim()
    sim.facts = StragglerFacts(kind="even", confidence=0.9)
    sim.run(200)
    sim.stick(3)
    sim.run(20)
    (incident,) = sim.incidents()
    assert b"slowed it down" not in rendered(incident)["report.md"]


def test_what_is_old_is_no_longer_said() -> None:
    sim = SlowSim()
    sim.facts = SLOW
    sim.run(70)
    sim.held = True  # from here on the job is not looked at: it has a case
    sim.run(300)
    assert sim.engine.status(sim.now).jobs[0].straggler is None


def test_jobs_without_recorders_are_asked_rarely() -> None:
    sim = SlowSim()
    sim.run(600)
    assert len(sim.looks) <= 2


def test_it_can_be_switched_off_and_small_jobs_are_left_alone() -> None:
    off = SlowSim(config=Config(stragglers=StragglersConfig(interval_seconds=0.0)))
    off.run(150)
    two = SlowSim(world=2, nodes=1)
    two.run(150)
    large = SlowSim(config=Config(stragglers=StragglersConfig(most_ranks=4)))
    large.run(150)
    assert not off.looks
    assert not two.looks
    assert not large.looks


def test_ranks_that_do_not_attach_are_not_asked() -> None:
    sim = SlowSim(attached=False)
    sim.run(150)
    assert not sim.looks

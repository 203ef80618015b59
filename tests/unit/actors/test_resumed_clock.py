"""A restarted coordinator's clock, and what people are told of times after a clock was set."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.actors.bundles import bundle
from ray_sentinel.actors.coordinator.engine_loop import EngineLoop, shown
from ray_sentinel.actors.coordinator.event_log import recovery
from ray_sentinel.actors.coordinator.event_log.recovery import resumed_clock
from ray_sentinel.clock import FakeClock, SteadyClock
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, Publish
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import Tick
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import EvidenceItem, Incident, Milestone, Transition, Verdict
from ray_sentinel.model.last_hour import JobPulse, PulseMark, PulsePhase, PulseReport
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.status import JobStatus
from ray_sentinel.model.straggler import StragglerStatus
from tests.support.engine_sim import Sim

START = 1_700_000_000.0
STEPS = pytest.mark.parametrize("step", [-86_400.0, -3600.0, 3600.0, 86_400.0])


def logged(folder: Path, wall: FakeClock) -> float:
    """A coordinator that ticked for ten seconds and was killed; the time of its last event."""
    clock = SteadyClock(wall)
    loop = EngineLoop(Engine(), clock, lambda action: None, folder, 1 << 20)
    for _ in range(10):
        wall.advance(1.0)
        loop.feed(Tick(time=0.0))
    loop.close()
    return clock.now()


def taken_up(folder: Path | None, wall: FakeClock) -> SteadyClock:
    restored = recovery.restore(folder, Config())
    return resumed_clock(restored.newest, restored.engine.now, wall)


@STEPS
def test_time_goes_on_where_the_clock_was_set_meanwhile(tmp_path: Path, step: float) -> None:
    wall = FakeClock(START)
    last = logged(tmp_path, wall)
    wall.step(step)
    wall.advance(4.0)
    clock = taken_up(tmp_path, wall)
    assert clock.now() == last + 4.0
    assert clock.shown(last) == last + step


@STEPS
def test_on_another_machine_time_goes_on_too(
    tmp_path: Path, step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = logged(tmp_path, FakeClock(START))
    monkeypatch.setattr(recovery, "boot_number", lambda: 7)
    wall = FakeClock(last + step)
    clock = taken_up(tmp_path, wall)
    assert clock.now() == max(last, last + step)
    assert clock.shown(clock.now()) == wall.now()


def test_a_log_of_an_earlier_version_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / "000001.jsonl").write_text(
        '{"log":"ray_sentinel events","version":1,"started_at":5.0}\n{"event":"tick","time":9.0}\n'
    )
    wall = FakeClock(START)
    assert taken_up(tmp_path, wall).now() == START
    assert taken_up(None, wall).now() == START


def an_incident() -> Incident:
    process = ProcessId("n1", 5, 1)
    return Incident(
        id="0001",
        job="job",
        attempt=0,
        kind="gil-held",
        severity="critical",
        state="resolved",
        summary="",
        rule="rank.gil",
        suspected_at=START,
        last_progress=START - 1,
        job_since=START - 100,
        confirmed_at=START + 2,
        resolved_at=START + 9,
        verdict=Verdict(
            kind="gil-held",
            summary="",
            evidence=(
                EvidenceItem(source="exit", text="", at=START),
                EvidenceItem(source="stacks", text=""),
            ),
            stacks=(StackFact(process=process, at=START), StackFact(process=process)),
        ),
        history=(Transition(START, "suspected"),),
        milestones=(Milestone(START + 3, "notified", ""),),
        straggler=StragglerStatus(kind="slow-rank", at=START, heat=((START, 3.0),)),
    )


def test_all_times_of_an_incident_are_the_wall_clocks() -> None:
    told = shown(an_incident(), 3600.0)
    assert told.verdict is not None
    assert told.straggler is not None
    assert told.suspected_at == START + 3600
    assert told.last_progress == START + 3599
    assert told.job_since == START + 3500
    assert told.confirmed_at == START + 3602
    assert told.resolved_at == START + 3609
    assert told.history[0].at == START + 3600
    assert told.milestones[0].at == START + 3603
    assert told.clock_shift == 3600
    assert [item.at for item in told.verdict.evidence] == [START + 3600, None]
    assert [stack.at for stack in told.verdict.stacks] == [START + 3600, 0.0]
    assert (told.straggler.at, told.straggler.heat) == (START + 3600, ((START + 3600, 3.0),))
    assert shown(told, 0.0) is told


def test_all_times_of_a_jobs_lines_are_the_wall_clocks() -> None:
    alert = Alert(rule="gpu.hot", severity="warning", text="", since=START)
    job = JobStatus(
        job="job", attempt=0, step=1, phase="train", step_age_seconds=2.0, alerts=(alert,)
    )
    told = shown(job, -60.0)
    assert told.alerts[0].since == START - 60
    assert told.step_age_seconds == 2.0


def test_all_times_of_the_pulse_are_the_wall_clocks() -> None:
    phases = (PulsePhase(phase="a", start=START, end=START + 1), PulsePhase(phase="b", start=START))
    mark = PulseMark(at=START, about="gpu", host="n1", text="")
    job = JobPulse(job="job", attempt=0, counts="steps", phases=phases, marks=(mark,))
    told = shown(PulseReport(begin=START, width=10.0, places=360, jobs=(job,)), 60.0)
    assert (told.begin, told.width) == (START + 60, 10.0)
    times = [(phase.start, phase.end) for phase in told.jobs[0].phases]
    assert times == [(START + 60, START + 61), (START + 60, None)]
    assert told.jobs[0].marks[0].at == START + 60


@STEPS
def test_what_is_published_is_found_again_after_the_clock_was_set(
    tmp_path: Path, step: float
) -> None:
    incident = an_incident()
    made = bundle.create(tmp_path, shown(incident, 7.25))
    assert bundle.find(tmp_path, shown(incident, step)) == made
    assert bundle.find(tmp_path, incident) == made


def test_an_incident_is_published_with_the_time_of_the_wall_clock(tmp_path: Path) -> None:
    acts: list[AnyAction] = []
    sim = Sim()
    wall = FakeClock(sim.now)
    loop = EngineLoop(sim.engine, SteadyClock(wall), acts.append, None, 1 << 20)

    def feed(event: object) -> None:
        wall.advance(sim.now - begun - wall.monotonic())
        loop.feed(event)  # type: ignore[arg-type]
        for action in acts[len(sim.actions) :]:
            sim.actions.append(action)
            sim.answer(action)

    begun = sim.now
    sim.feed = feed  # type: ignore[method-assign, assignment]
    sim.run(60)
    wall.step(3600.0)
    sim.stick(2)
    sim.run(30)
    (incident,) = loop.incidents()
    assert incident.suspected_at == pytest.approx(wall.now() - 30 + 10, abs=8)
    published = [action.incident for action in acts if isinstance(action, Publish)]
    assert published[-1].confirmed_at == incident.confirmed_at
    assert incident.clock_shift == pytest.approx(3600.0, abs=0.01)

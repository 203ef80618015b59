"""The engine itself: dumps by hand, its log, its rules and thresholds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.event_log.log import EventLog
from ray_sentinel.config import CaptureConfig as Settings
from ray_sentinel.config import load
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import DumpAsked
from ray_sentinel.engine.incidents import asking
from ray_sentinel.errors import ConfigError
from tests.support.engine_sim import Sim


def test_a_dump_by_hand_is_captured_and_over() -> None:
    sim = Sim()
    sim.run(30)
    sim.feed(DumpAsked(time=sim.now))
    sim.run(5)
    (incident,) = sim.incidents()
    assert (incident.kind, incident.state, incident.severity) == ("asked", "resolved", "info")
    assert sim.engine.status(sim.now).state == "healthy"


def test_a_capture_after_a_fixed_time_comes_also_while_the_job_hangs() -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2)
    sim.run(20)
    assert sim.incidents()
    sim.feed(DumpAsked(time=sim.now))
    assert "asked" not in [incident.kind for incident in sim.incidents()]
    sim.feed(DumpAsked(time=sim.now, why="the time has come", thorough=True))
    assert "asked" in [incident.kind for incident in sim.incidents()]


def test_an_incident_of_ranks_that_turn_out_to_be_another_jobs_is_over() -> None:
    sim = Sim(attached=False)
    sim.run(30)
    sim.stick(2, state="T")
    sim.run(20)
    assert sim.named() == [2]
    for rank in sim.ranks:
        rank.job, rank.attached = "rollouts", True
    sim.run(4)
    first = sim.incidents()[0]
    assert (first.state, first.history[-1].why) == ("resolved", "its processes are another job's")
    assert [job for job, _ in sim.engine.view.jobs] == ["rollouts"]


def test_a_thorough_capture_may_take_a_minute_for_each_process_of_a_node() -> None:
    sim = Sim()
    sim.run(5)
    (job,) = sim.engine.view.jobs.values()
    ranks = [msgspec.structs.replace(view.rank, node="n") for view in job.live]
    one, two = Settings(), Settings(max_intrusive_per_node=2)
    assert asking.capture_seconds(ranks, one, thorough=False) == 60.0
    assert asking.capture_seconds(ranks, one, thorough=True) == 60.0 + 66.0 * len(ranks)
    assert asking.capture_seconds(ranks, two, thorough=True) == 60.0 + 66.0 * len(ranks) / 2
    for off in (Settings(enabled=False), Settings(cuda_gdb=False), Settings(max_intrusive=0)):
        assert asking.capture_seconds(ranks, off, thorough=True) == 60.0


def test_the_log_replays_to_the_same_incidents(tmp_path: Path) -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2)
    sim.run(20)
    log = EventLog(tmp_path)
    for event in sim.log:
        log.append(event)
    log.close()
    engine = Engine()
    actions = [action for event in event_log.read(tmp_path)[1] for action in engine.handle(event)]
    assert engine.incidents() == sim.incidents()
    assert actions == sim.actions


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

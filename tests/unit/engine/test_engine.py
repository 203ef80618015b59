"""The engine itself: dumps by hand, its log, its rules and thresholds."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.actors import eventlog
from ray_sentinel.actors.eventlog import EventLog
from ray_sentinel.config import load
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import DumpAsked
from ray_sentinel.errors import ConfigError
from tests.support.engine_sim import Sim


def test_a_dump_by_hand_is_captured_and_over() -> None:
    sim = Sim()
    sim.run(30)
    sim.feed(DumpAsked(time=sim.now))
    sim.run(5)
    (incident,) = sim.incidents()
    assert (incident.kind, incident.state, incident.severity) == ("asked", "resolved", "info")
    assert sim.engine.status(sim.now)[0] == "healthy"


def test_the_log_replays_to_the_same_incidents(tmp_path: Path) -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2)
    sim.run(20)
    log = EventLog(tmp_path)
    for event in sim.log:
        log.append(event, ())
    log.close()
    engine = Engine()
    actions = [action for event in eventlog.read(tmp_path)[1] for action in engine.handle(event)]
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

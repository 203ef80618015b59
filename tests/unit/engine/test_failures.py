"""One part of the engine that fails does not take the others with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ray_sentinel.actors.coordinator.engine_loop import log_failures
from ray_sentinel.engine.actions import AnyAction, Capture, Publish
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.events import AnyEvent, CaptureDone, Tick
from ray_sentinel.engine.incidents import asking
from ray_sentinel.engine.incidents.asking import CAPTURE_SLACK
from ray_sentinel.engine.rules.held_ranks import RankStopped
from ray_sentinel.engine.rules.silent_jobs import HangSilent
from tests.support.engine_sim import Sim


def fail(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("a rule divided")


def test_a_rule_that_fails_costs_only_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sim = Sim()
    sim.run(30)
    monkeypatch.setattr(HangSilent, "evaluate", fail)
    sim.stick(2, state="T")
    sim.run(8)
    assert sim.named() == [2]
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            sim.engine.handle(Tick(time=sim.now))
            log_failures(sim.engine)
    assert caplog.text.count("the engine failed in hang.silent") == 1
    assert sim.engine.failures.told["hang.silent"] == "ZeroDivisionError: a rule divided"


def test_what_a_rule_found_before_it_failed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = RankStopped.evaluate

    def torn(self: RankStopped, view: Any, now: float) -> Iterator[Any]:
        yield from evaluate(self, view, now)
        fail()

    sim = Sim()
    sim.run(30)
    monkeypatch.setattr(RankStopped, "evaluate", torn)
    sim.stick(2, state="T")
    sim.run(8)
    assert sim.named() == [2]


def test_a_rule_that_fails_takes_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2)
    while not sim.engine.store.cases:
        sim.run(0.5)
    with monkeypatch.context() as patch:
        patch.setattr(HangSilent, "evaluate", fail)
        sim.run(1.0)
    assert sim.engine.store.cases, "that it cannot be said is no news"
    sim.run(20)
    assert sim.named() == [2]


def test_what_is_told_is_not_lost_with_a_capture_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sim = Sim()
    sim.run(30)
    sim.stick(2, state="T")
    with monkeypatch.context() as patch:
        patch.setattr(asking, "capture_seconds", fail)
        sim.run(8)
    assert [a.incident.state for a in sim.actions if isinstance(a, Publish)] == ["confirmed"]
    (case,) = sim.engine.store.cases.values()
    assert not case.capturing
    sim.run(sim.engine.config.capture.cooldown_seconds)
    assert any(isinstance(action, Capture) for action in sim.actions), "it is tried again"


class NeverCaptured(Sim):
    """A simulated job whose captures never end."""

    def answer(self, action: AnyAction) -> None:
        if not isinstance(action, Capture):
            super().answer(action)


def test_a_capture_that_never_comes_does_not_keep_an_incident_open() -> None:
    sim = NeverCaptured()
    sim.run(30)
    sim.stick(2, state="T")
    sim.run(8)
    (capture,) = [action for action in sim.actions if isinstance(action, Capture)]
    sim.rank(2).stuck, sim.rank(2).state = False, "S"
    sim.run(20)
    assert sim.incidents()[0].state == "confirmed", "its capture may still come"
    sim.run(sim.engine.config.capture.deadline + CAPTURE_SLACK)
    assert sim.incidents()[0].state == "resolved"
    late: AnyEvent = CaptureDone(time=sim.now, incident=capture.incident.id, bundle="/late")
    sim.feed(late)
    assert sim.incidents()[0].bundle == "/late"


def test_an_event_that_fails_is_told_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sim = Sim()
    sim.run(30)
    with monkeypatch.context() as patch:
        patch.setattr(ClusterView, "advance", fail)
        assert [sim.engine.handle(Tick(time=sim.now)) for _ in range(3)] == [[], [], []]
    with caplog.at_level(logging.ERROR):
        said = log_failures(sim.engine)
    wanted = "the engine failed in handling Tick (ZeroDivisionError: a rule divided)"
    assert said == [wanted]
    assert caplog.text.count("the engine failed in handling Tick") == 1
    sim.engine.failures.told.clear()
    sim.stick(2, state="T")
    sim.run(8)
    assert sim.named() == [2]

"""The engine's surroundings: order, failures, a log that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.actors import eventlog
from ray_sentinel.actors.brain import Brain
from ray_sentinel.clock import FakeClock
from ray_sentinel.engine.actions import AnyAction
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, DumpAsked, Tick


def brain(folder: Path | None, engine: Engine | None = None) -> tuple[Brain, list[AnyAction]]:
    acts: list[AnyAction] = []
    return Brain(engine or Engine(), FakeClock(), acts.append, folder, 1 << 20), acts


def feed_last(subject: Brain, event: AnyEvent) -> None:
    """Feed an event after which no other comes, and let the log's thread write it."""
    number = subject.feed(event)
    subject.close()
    assert subject.written(number)


def test_time_never_goes_back(tmp_path: Path) -> None:
    subject, _ = brain(tmp_path)
    subject.feed(Tick(time=100.0))
    feed_last(subject, Tick(time=90.0))
    assert [event.time for event in eventlog.read(tmp_path)[1]] == [100.0, 100.0]


def test_an_engine_that_fails_is_said_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine()
    subject, _ = brain(tmp_path, engine)

    def broken(event: object) -> list[AnyAction]:
        raise ZeroDivisionError("a rule divided")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "handle", broken)
        subject.feed(Tick(time=1.0))
    assert "ZeroDivisionError: a rule divided" in subject.notes()[0]
    feed_last(subject, DumpAsked(time=2.0))
    assert len(eventlog.read(tmp_path)[1]) == 2, "the event that broke it is in the log too"


def test_a_log_that_cannot_be_written_is_said_and_nothing_waits(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    subject, _ = brain(blocked / "events")
    feed_last(subject, Tick(time=1.0))
    (note,) = subject.notes()
    assert str(blocked / "events") in note
    assert "make room" in note


def test_without_a_folder_everything_is_in_memory() -> None:
    subject, _ = brain(None)
    feed_last(subject, Tick(time=1.0))
    assert subject.notes() == ()
    assert subject.incidents() == ()


def test_an_event_that_cannot_be_written_costs_itself_alone(tmp_path: Path) -> None:
    subject, _ = brain(tmp_path)
    subject.feed(DumpAsked(time=1.0, job="\udcff"))
    feed_last(subject, Tick(time=2.0))
    assert [event.time for event in eventlog.read(tmp_path)[1]] == [2.0]
    (note,) = subject.notes()
    assert "DumpAsked" in note


def test_a_clock_that_was_set_back_does_not_stop_the_engine(tmp_path: Path) -> None:
    clock = FakeClock(10_000.0)
    subject = Brain(Engine(), clock, lambda action: None, tmp_path, 1 << 20)
    subject.feed(Tick(time=10_000.0))
    for _ in range(100):
        clock.advance(1.0)
        subject.feed(Tick(time=clock.now() - 3600.0))
    feed_last(subject, Tick(time=clock.now() - 3600.0))
    last = eventlog.read(tmp_path)[1][-1].time
    assert 10_080.0 < last < 10_100.0, "it goes on, a little slower, until the clock has caught up"


def test_a_moment_late_is_no_clock_set_back(tmp_path: Path) -> None:
    clock = FakeClock(10_000.0)
    subject = Brain(Engine(), clock, lambda action: None, tmp_path, 1 << 20)
    subject.feed(Tick(time=10_000.0))
    clock.advance(5.0)
    feed_last(subject, Tick(time=9_999.5))
    assert eventlog.read(tmp_path)[1][-1].time == 10_000.0

"""A restarted coordinator knows what the one before knew."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.actors.coordinator.event_log.log import EventLog, segments
from ray_sentinel.actors.coordinator.event_log.recovery import restore
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import Capture, Publish
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, CaptureDone, DumpAsked, SnapshotReceived, Tick
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.progress import ProcessState, Progress, RankSnapshot, Snapshot

NODE = Node(id="n", host="h", address="10.0.0.1")


def snapshot(now: float, step: int) -> SnapshotReceived:
    rank = Rank(id=RankId("j", 0, 0), process=ProcessId("h", 100, 1), node="n", world_size=1)
    progress = Progress(
        step=step, step_ended_at=now, step_seconds=1.0, steps_recorded=step, phase="train"
    )
    seen = RankSnapshot(
        rank=rank, process=ProcessState(state="S", cpu_seconds=now), progress=progress
    )
    return SnapshotReceived(
        time=now, snapshot=Snapshot(node=NODE, time=now, sequence=step, ranks=(seen,))
    )


def history() -> list[AnyEvent]:
    events: list[AnyEvent] = []
    for step in range(1, 20):
        events += [snapshot(1000.0 + step, step), Tick(time=1000.5 + step)]
    events.append(DumpAsked(time=1020.0))
    return events


def play(engine: Engine, events: list[AnyEvent], folder: Path) -> EventLog:
    log = EventLog(folder)
    record(engine, events, log)
    return log


def record(engine: Engine, events: list[AnyEvent], log: EventLog) -> None:
    """As a coordinator does it."""
    for event in events:
        state = engine.state.packed() if log.begins else b""
        engine.handle(event)
        log.append(event, state)


def test_incidents_and_open_actions_come_back(tmp_path: Path) -> None:
    before = Engine()
    play(before, history(), tmp_path)
    after, pending, count, *_ = restore(tmp_path, Config())
    assert after.incidents() == before.incidents()
    assert len(after.incidents()) == 1
    assert count == len(history())
    assert [type(action) for action in pending] == [Capture]


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    before = Engine()
    log = play(before, history(), tmp_path)
    done = CaptureDone(time=1021.0, incident=before.incidents()[0].id, bundle="/b")
    before.handle(done)
    log.append(done)
    after, pending, *_ = restore(tmp_path, Config())
    assert pending == []
    assert after.incidents()[0].bundle == "/b"
    # and the restored engine goes on where the other stopped
    actions = after.handle(Tick(time=1021.1))
    assert [type(action) for action in actions] == [Publish]
    assert after.incidents()[0].state == "resolved"


def test_a_replay_begins_where_no_incident_was_open(tmp_path: Path) -> None:
    before = Engine()
    record(before, history(), EventLog(tmp_path, segment_bytes=2000))
    after, pending, count, *_ = restore(tmp_path, Config())
    assert count < len(history()), "not all segments are read"
    assert [incident.id for incident in after.incidents()] == ["0001"]
    assert [type(action) for action in pending] == [Capture]


def test_no_log_is_a_fresh_start(tmp_path: Path) -> None:
    for folder in (None, tmp_path / "missing"):
        engine, pending, count, *_ = restore(folder, Config())
        assert (engine.incidents(), pending, count) == ((), [], 0)


def test_a_broken_log_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "000001.jsonl").write_bytes(b"garbage\n")
    assert restore(tmp_path, Config()).events == 0


def test_numbers_of_earlier_deployments_are_not_given_again(tmp_path: Path) -> None:
    engine = restore(tmp_path, Config(), taken=7).engine
    play(engine, history(), tmp_path)
    assert [incident.id for incident in engine.incidents()] == ["0008"]
    # Its own bundle is there by now; the replay must number it as it was.
    again = restore(tmp_path, Config(), taken=8)
    assert [incident.id for incident in again.engine.incidents()] == ["0008"]
    assert again.engine.incidents() == engine.incidents()


def test_the_number_of_an_incident_whose_beginning_is_lost_is_not_given_again(
    tmp_path: Path,
) -> None:
    engine = Engine()
    play(engine, history(), tmp_path)
    (first,) = segments(tmp_path)
    # A second segment that began while the incident was open; then the first is lost.
    second = EventLog(tmp_path)
    second.append(Tick(time=1030.0), engine.state.packed())
    for path in segments(tmp_path)[:-1]:
        path.write_bytes(b"lost")
    assert first not in segments(tmp_path)[-1:]
    again = restore(tmp_path, Config()).engine
    assert again.store.next_id() == "0002"
    assert again.incidents() == engine.incidents()


def test_an_event_that_the_engine_fails_on_does_not_keep_the_coordinator_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    play(Engine(), history(), tmp_path)

    advance = ClusterView.advance

    def mistaken(self: ClusterView, now: float) -> None:
        if now == 1005.5:
            raise ZeroDivisionError("a rule divided")
        advance(self, now)

    monkeypatch.setattr(ClusterView, "advance", mistaken)
    after, pending, count, *_ = restore(tmp_path, Config())
    assert count == len(history())
    assert [type(action) for action in pending] == [Capture]
    assert [incident.id for incident in after.incidents()] == ["0001"]
    assert "ZeroDivisionError" in caplog.text

"""The engine's surroundings: order, failures, a log that cannot be written."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.event_log.writer import RETRY_SECONDS
from ray_sentinel.clock import FakeClock, SteadyClock
from ray_sentinel.engine.actions import AnyAction
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, DumpAsked, SnapshotReceived, Tick
from ray_sentinel.engine.rules.silent_jobs import HangSilent
from ray_sentinel.engine.state import StateCut
from ray_sentinel.engine.telemetry.series import Telemetry
from ray_sentinel.model.identity import Node
from ray_sentinel.model.incident import Finding
from ray_sentinel.model.progress import Snapshot
from ray_sentinel.progress.rank.own_process import boot_number
from tests.support.engine_sim import Sim
from tests.support.samples import sampled, series_key
from tests.support.waiting import eventually


def loop(folder: Path | None, engine: Engine | None = None) -> tuple[EngineLoop, list[AnyAction]]:
    acts: list[AnyAction] = []
    clock = SteadyClock(FakeClock())
    return EngineLoop(engine or Engine(), clock, acts.append, folder, 1 << 20), acts


def feed_last(subject: EngineLoop, event: AnyEvent) -> None:
    """Feed an event after which no other comes, and let the log's thread write it."""
    number = subject.feed(event)
    subject.close()
    assert subject.written(number)


def test_events_have_the_time_when_they_are_fed(tmp_path: Path) -> None:
    wall = FakeClock(100.0)
    subject = EngineLoop(Engine(), SteadyClock(wall), lambda action: None, tmp_path, 1 << 20)
    subject.feed(Tick(time=500.0))
    wall.advance(1.0)
    feed_last(subject, Tick(time=90.0))
    assert [event.time for event in event_log.read(tmp_path)[1]] == [100.0, 101.0]


def test_an_engine_that_fails_is_said_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    subject, _ = loop(tmp_path)

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a rule divided")

    with monkeypatch.context() as patch:
        patch.setattr(ClusterView, "advance", broken)
        subject.feed(Tick(time=1.0))
    assert "handling Tick failed (ZeroDivisionError: a rule divided)" in subject.notes()[0]
    assert "Traceback" in caplog.text
    feed_last(subject, DumpAsked(time=2.0))
    assert len(event_log.read(tmp_path)[1]) == 2, "the event that broke it is in the log too"


def test_a_rule_that_fails_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    subject, _ = loop(None)

    def broken(*_: object) -> list[Finding]:
        raise ZeroDivisionError("a rule divided")

    monkeypatch.setattr(HangSilent, "evaluate", broken)
    subject.feed(Tick(time=1.0))
    subject.feed(Tick(time=2.0))
    (note,) = subject.notes()
    assert note.startswith("hang.silent failed (ZeroDivisionError: a rule divided)")


def test_a_log_that_cannot_be_written_is_said_and_nothing_waits(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    subject, _ = loop(blocked / "events")
    feed_last(subject, Tick(time=1.0))
    (note,) = subject.notes()
    assert str(blocked / "events") in note
    assert "make room" in note


def test_without_a_folder_everything_is_in_memory() -> None:
    subject, _ = loop(None)
    feed_last(subject, Tick(time=1.0))
    assert subject.notes() == ()
    assert subject.incidents() == ()


def test_an_event_that_cannot_be_written_costs_itself_alone(tmp_path: Path) -> None:
    subject, _ = loop(tmp_path)
    subject.feed(DumpAsked(time=1.0, job="\udcff"))
    feed_last(subject, Tick(time=2.0))
    assert [type(event) for event in event_log.read(tmp_path)[1]] == [Tick]
    (note,) = subject.notes()
    assert "DumpAsked" in note


def test_the_engine_goes_on_while_what_nodes_sent_is_read_for_the_history() -> None:
    """Half an hour of 50 nodes takes 25 s to be made rows of."""
    clock = FakeClock(100.0)
    subject = EngineLoop(Engine(), SteadyClock(clock), lambda action: None, None, 1 << 20)

    def tell(node_id: str, value: float) -> None:
        node = Node(id=node_id, host=f"h-{node_id}", address="")
        samples = sampled({"hw_load1": value})
        snapshot = Snapshot(node=node, time=clock.now(), sequence=1, samples=samples)
        subject.feed(SnapshotReceived(time=0.0, snapshot=snapshot))

    tell("b", 2.0)
    for value in range(6):
        tell("a", float(value))
        clock.advance(5.0)
    until = {"gone": 50.0}
    rows = iter(subject.rows(until, -math.inf, 5.0))
    load = series_key("hw_load1")
    assert next(rows) == (100.0, "h-b", {load: 2.0})
    with ThreadPoolExecutor(1) as other:
        assert next(rows) == (100.0, "h-a", {load: 0.0})
        other.submit(tell, "a", 6.0).result(10.0)
        clock.advance(5.0)
        other.submit(tell, "a", 7.0).result(10.0)
    later = [(105.0 + 5 * turn, "h-a", {load: 1.0 + turn}) for turn in range(7)]
    assert list(rows) == later
    assert until == {"b": 100.0, "a": 135.0}, "of a node that is not known any more nothing is kept"


def test_the_engine_goes_on_while_its_state_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of 8,192 ranks takes most of a second."""
    go_on = threading.Event()
    engine = Engine()
    subject, _ = loop(tmp_path, engine)
    packed = StateCut.packed

    def slow(cut: StateCut) -> bytes:
        assert go_on.wait(30.0), "who feeds events waits for the state to be packed"
        return packed(cut)

    monkeypatch.setattr(StateCut, "packed", slow)
    node = Node(id="a", host="h-a", address="")
    at_once = engine.state.packed()
    for sequence in range(5):
        samples = sampled({"hw_load1": float(sequence)})
        snapshot = Snapshot(node=node, time=100.0, sequence=sequence, samples=samples)
        subject.feed(SnapshotReceived(time=0.0, snapshot=snapshot))
        subject.feed(Tick(time=0.0))
    assert engine.view.telemetry.size, "the events were taken"
    go_on.set()
    subject.close()
    (path,) = event_log.segments(tmp_path)
    header, events = event_log.read_segment(path)
    assert event_log.unpacked_state(header) == at_once
    assert len(events) == 10


def test_a_log_that_fails_goes_on_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is the only one that writes."""
    clock = FakeClock()
    subject = EngineLoop(Engine(), SteadyClock(clock), lambda action: None, tmp_path, 1 << 20)

    def broken(cut: StateCut) -> bytes:
        raise MemoryError("no room for the state")

    with monkeypatch.context() as patch:
        patch.setattr(StateCut, "packed", broken)
        number = subject.feed(Tick(time=0.0))
        eventually(lambda: subject.written(number), "the event is given up")
    (note,) = subject.notes()
    assert note.startswith("the event log failed (MemoryError: no room for the state)")
    assert "1 events are missing" in note
    clock.advance(RETRY_SECONDS + 1.0)
    feed_last(subject, Tick(time=0.0))
    (path,) = event_log.segments(tmp_path)
    header, events = event_log.read_segment(path)
    assert header.lost == 1
    assert len(events) == 1
    assert event_log.unpacked_state(header), "it begins with all that is known by then"


def test_no_node_comes_while_the_nodes_series_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject, _ = loop(None)
    fed = threading.Event()

    def feed() -> None:
        subject.feed(Tick(time=0.0))
        fed.set()

    def size(telemetry: Telemetry) -> int:
        threading.Thread(target=feed, daemon=True).start()
        return int(fed.wait(0.2))

    with monkeypatch.context() as patch:
        patch.setattr(Telemetry, "size", property(size))
        assert subject.series_bytes == 0, "the event waits"
    assert fed.wait(30.0)


@pytest.mark.parametrize("step", [-86_400.0, -3600.0, 3600.0, 86_400.0])
def test_a_wall_clock_that_is_set_changes_no_time_of_an_event(tmp_path: Path, step: float) -> None:
    wall = FakeClock(10_000_000.0)
    subject = EngineLoop(Engine(), SteadyClock(wall), lambda action: None, tmp_path, 1 << 20)
    for number in range(10):
        wall.advance(1.0)
        if number == 5:
            wall.step(step)
        subject.feed(Tick(time=wall.now()))
    feed_last(subject, Tick(time=wall.now()))
    times = [event.time for event in event_log.read(tmp_path)[1]]
    assert times == [*(10_000_001.0 + second for second in range(10)), 10_000_010.0]


def test_the_log_says_by_which_clock_its_times_go_on(tmp_path: Path) -> None:
    wall = FakeClock(10_000.0)
    wall.advance(7.0)
    subject = EngineLoop(Engine(), SteadyClock(wall), lambda action: None, tmp_path, 1 << 20)
    feed_last(subject, Tick(time=0.0))
    header, _ = event_log.read(tmp_path)
    assert (header.clock_offset, header.boot) == (10_000.0, boot_number())


class Interposed(SteadyClock):
    """A clock in whose next reading something else comes between."""

    then: Callable[[], object] | None = None

    def now(self) -> float:
        then, self.then = self.then, None
        if then is not None:
            then()
        return super().now()


def test_a_capture_that_was_asked_for_returns_its_own_incidents_alone() -> None:
    sim = Sim(world=6)
    for rank in sim.ranks[3:]:
        rank.job, rank.number = "other", rank.number - 3
    sim.run(30)
    clock = Interposed(FakeClock(sim.now))
    subject = EngineLoop(sim.engine, clock, lambda action: None, None, 1 << 20)
    clock.then = lambda: subject.feed(DumpAsked(time=sim.now, job="other", why="by another"))
    (made,) = subject.dump("job", "by hand")
    assert (made.job, made.kind) == ("job", "asked")
    assert {one.job for one in subject.incidents()} == {"job", "other"}, "at the same moment"

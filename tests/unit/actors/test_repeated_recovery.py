"""A coordinator that is killed again and again, and one that is killed after its log's segment was
full: incidents, their numbers and what was learned stay."""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.actors.coordinator import engine_loop
from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.event_log.log import (
    SegmentHeader,
    packed_state,
    read_segment,
    segments,
    unpacked_state,
)
from ray_sentinel.actors.coordinator.event_log.recovery import Restored, restore
from ray_sentinel.clock import FakeClock, SteadyClock
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, Capture
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, IncidentTold, Tick
from ray_sentinel.engine.state import EngineState, StateCut, unpacked
from ray_sentinel.engine.telemetry.series import HeldNode, NodeTelemetry
from ray_sentinel.model.incident import Incident
from tests.support.engine_sim import ATTACHED, Sim
from tests.support.samples import sampled

EVENTS = Path(__file__).parents[2] / "fixtures/events"


class SimClock(FakeClock):
    """The simulation's time."""

    def __init__(self, sim: Sim) -> None:
        super().__init__()
        self._sim = sim

    def now(self) -> float:
        return self._sim.now

    def monotonic(self) -> float:
        return self._sim.now


class Killed(Sim):
    """A simulated job whose coordinator has an event log, and can be killed."""

    def __init__(self, folder: Path, attached: bool = True, world: int = 6) -> None:
        super().__init__(world, attached=attached)
        self.folder = folder
        self.loop = self._begin(self.engine)

    def _begin(self, engine: Engine) -> EngineLoop:
        clock = SteadyClock(SimClock(self))
        return EngineLoop(engine, clock, self._act, self.folder, 1 << 30)

    def _act(self, action: AnyAction) -> None:
        self.actions.append(action)
        self.answer(action)

    def feed(self, event: AnyEvent) -> None:
        self.loop.feed(event)

    def kill(self, taken: int = 0) -> Restored:
        """What it had asked for is lost; the next one replays the log."""
        self.loop.close()
        self.pending.clear()
        restored = restore(self.folder, Config(), taken)
        self.engine = restored.engine
        self.loop = self._begin(restored.engine)
        for action in restored.pending:
            self._act(action)
        return restored

    def full(self) -> None:
        """The segment is full, as if its jobs were large."""
        self.loop.close()
        self.loop = self._begin(self.engine)

    def notes(self) -> tuple[str, ...]:
        """Once all that was fed is written; nothing more is then."""
        self.loop.close()
        return self.loop.notes()


def the_incident(sim: Sim) -> Incident:
    (incident,) = sim.incidents()
    return incident


@ATTACHED
def test_killed_before_and_after_the_incident(tmp_path: Path, attached: bool) -> None:
    sim = Killed(tmp_path, attached)
    sim.run(60)
    sim.stick(2)
    sim.run(4)
    sim.kill()
    assert sim.incidents() == ()
    sim.run(30)
    told = the_incident(sim)
    assert (told.id, told.state) == ("0001", "explained")
    for _ in range(3):
        assert sim.kill().pending == []
        assert sim.incidents() == (told,)
        assert sim.engine.status(sim.now).state != "healthy"
        sim.run(20)
    assert sim.incidents() == (told,)
    assert sim.named() == [2]


@ATTACHED
def test_killed_at_once_after_a_restart_that_saw_nothing(tmp_path: Path, attached: bool) -> None:
    sim = Killed(tmp_path, attached)
    sim.run(60)
    learned = sim.engine.view.jobs["job", 0].timeout()
    sim.stick(2)
    sim.run(1)
    for _ in range(3):
        sim.kill()
        sim.feed(Tick(time=sim.now))
    job = sim.engine.view.jobs["job", 0]
    assert (job.phase(), job.timeout()) == ("train", learned)
    sim.run(25)
    assert (the_incident(sim).id, sim.named()) == ("0001", [2])


@ATTACHED
def test_killed_after_the_segment_was_full(tmp_path: Path, attached: bool) -> None:
    sim = Killed(tmp_path, attached)
    sim.run(60)
    before = sim.engine.view.jobs["job", 0]
    sim.stick(2)
    sim.run(2)
    sim.full()
    sim.run(2)
    restored = sim.kill()
    assert restored.events < 100, "the replay began at the newest segment"
    after = sim.engine.view.jobs["job", 0]
    assert after.phase() == "train"
    assert after.silence(sim.now) == before.silence(sim.now)
    assert after.timeout() == before.timeout()
    assert after.first_seen == before.first_seen
    sim.run(25)
    assert (the_incident(sim).id, sim.named()) == ("0001", [2])


@ATTACHED
def test_what_was_resolved_stays_resolved(tmp_path: Path, attached: bool) -> None:
    sim = Killed(tmp_path, attached)
    sim.run(60)
    sim.kill()
    sim.run(1)
    sim.stick(2)
    sim.run(30)
    assert the_incident(sim).state == "explained"
    sim.rank(2).stuck = False
    sim.begin_step()
    sim.run(15)
    told = the_incident(sim)
    assert told.state == "resolved"
    for _ in range(3):
        assert sim.kill().pending == []
        assert sim.incidents() == (told,)
        sim.run(2)
    assert sim.incidents() == (told,)
    sim.stick(3)
    sim.run(30)
    assert [incident.id for incident in sim.incidents()] == ["0001", "0002"]


def test_all_that_ended_is_known(tmp_path: Path) -> None:
    sim = Killed(tmp_path)
    sim.run(60)
    sim.end(0, code=0)
    sim.run(1)
    sim.full()
    sim.run(2)
    before = sim.engine.view.jobs["job", 0]
    sim.kill()
    after = sim.engine.view.jobs["job", 0]
    assert after.ranks.keys() == before.ranks.keys()
    assert list(after.exits) == list(before.exits)
    assert after.exits.told == before.exits.told != {}
    assert after == before


def test_an_open_incident_outlives_the_segments_in_which_it_began(tmp_path: Path) -> None:
    sim = Killed(tmp_path)
    sim.run(60)
    sim.stick(2)
    sim.run(30)
    told = the_incident(sim)
    sim.full()
    sim.run(10)
    sim.loop.close()
    for path in segments(tmp_path)[:-1]:
        path.unlink()
    sim.kill()
    sim.run(10)
    assert sim.incidents() == (told,)
    assert sim.engine.status(sim.now).state != "healthy"
    sim.rank(2).stuck = False
    sim.begin_step()
    sim.run(10)
    assert the_incident(sim).state == "resolved"


def test_what_a_replay_makes_of_an_incident_counts_less_than_what_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim = Killed(tmp_path)
    sim.run(60)
    sim.stick(2)
    sim.run(30)
    told = the_incident(sim)
    # A rule that finds nothing any more, as after an update.
    with monkeypatch.context() as patch:
        patch.setattr(
            "ray_sentinel.engine.incidents.lifecycle.IncidentLifecycle.found", lambda *_: []
        )
        sim.kill()
        assert sim.incidents() == (told,)
    sim.run(20)
    assert sim.incidents() == (told,)


def test_what_was_confirmed_and_not_captured_is_captured(tmp_path: Path) -> None:
    sim = Killed(tmp_path)
    sim.run(60)
    sim.stick(2)
    while not any(isinstance(action, Capture) for action in sim.actions):
        sim.run(0.5)
    told = the_incident(sim)
    assert told.state == "confirmed"
    assert [type(action) for action in sim.kill().pending] == [Capture]
    sim.run(5)
    assert (the_incident(sim).id, the_incident(sim).state) == (told.id, "explained")


def test_a_number_that_is_on_a_bundle_is_not_given_again(tmp_path: Path) -> None:
    sim = Killed(tmp_path)
    sim.run(60)
    sim.kill(taken=22)
    sim.stick(2)
    sim.run(30)
    assert the_incident(sim).id == "0023"
    sim.kill(taken=23)
    assert the_incident(sim).id == "0023"


def test_a_header_that_was_torn_costs_nothing(tmp_path: Path) -> None:
    sim = Killed(tmp_path)
    sim.run(60)
    sim.stick(2)
    sim.run(30)
    told = the_incident(sim)
    sim.loop.close()
    number = len(segments(tmp_path)) + 1
    (tmp_path / f"{number:06d}.jsonl").write_bytes(b'{"log":"ray_sentinel events","ver')
    sim.kill()
    assert sim.incidents() == (told,)


def test_a_state_that_cannot_be_written_costs_itself_alone(tmp_path: Path) -> None:
    sim = Killed(tmp_path)
    sim.rank(1).phase = "\udcff"
    sim.run(10)
    sim.full()
    sim.run(10)
    sim.loop.close()
    found = [read_segment(path) for path in segments(tmp_path)]
    begun = [unpacked(unpacked_state(header)) for header, _ in found]
    assert [bool(state.cluster.jobs) for state, _ in begun] == [False, False]
    assert [problem for _, problem in begun] == ["", "it is of version 0, not 1"]
    assert all(len(events) > 20 for _, events in found)


@pytest.mark.parametrize("name", ["open", "resolved"])
def test_a_log_of_before_states_is_read(tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(EVENTS / "before_states" / name, tmp_path / "events")
    restored = restore(folder, Config())
    (incident,) = restored.engine.incidents()
    assert (incident.id, incident.kind) == ("0001", "host-stuck")
    assert incident.state == ("explained" if name == "open" else "resolved")
    assert restored.engine.status(restored.engine.now).jobs[0].job == "job"
    assert restored.engine.store.next_id() == "0002"


def test_a_log_in_which_what_is_told_began_segments_is_read(tmp_path: Path) -> None:
    folder = shutil.copytree(EVENTS / "before_told", tmp_path / "events")
    restored = restore(folder, Config())
    (incident,) = restored.engine.incidents()
    assert (incident.id, incident.kind, incident.state) == ("0001", "host-stuck", "explained")
    assert restored.events < 100, "the newest segment gives the state"
    assert restored.pending == []


def test_what_is_told_begins_no_segment(tmp_path: Path) -> None:
    sim = Killed(tmp_path)
    sim.run(60)
    sim.stick(2)
    sim.run(30)
    known = the_incident(sim)
    sim.loop.close()
    (segment,) = segments(tmp_path)
    told = [e.incident for e in read_segment(segment)[1] if isinstance(e, IncidentTold)]
    assert [incident.state for incident in told] == ["confirmed", "explained"]
    assert told[-1] == known


def begin_with(folder: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the state with which the newest segment begins."""
    path = segments(folder)[-1]
    line, *events = path.read_bytes().splitlines(keepends=True)
    header = msgspec.json.decode(line, type=SegmentHeader)
    header = msgspec.structs.replace(header, state=change(unpacked_state(header)))
    path.write_bytes(b"\n".join([msgspec.json.encode(header), b"".join(events)]))


def of_another_version(state: bytes) -> bytes:
    name = b"\xa7version"
    assert state[1:].startswith(name + b"\x01")
    return packed_state(state.replace(name + b"\x01", name + b"\x63", 1))


def test_a_state_of_another_version_gives_its_incidents(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sim = Killed(tmp_path)
    sim.run(30)
    sim.stick(2)
    sim.run(20)
    told = the_incident(sim)
    sim.full()
    sim.run(1)
    sim.loop.close()
    begin_with(tmp_path, of_another_version)
    sim.kill()
    assert sim.incidents() == (told,)
    assert "only the incidents are taken over: it is of version 99, not 1" in caplog.text
    sim.run(20)
    assert sim.incidents() == (told,), "the incident goes on when its job is seen again"
    sim.rank(2).stuck = False
    sim.begin_step()
    sim.run(10)
    assert (the_incident(sim).id, the_incident(sim).state) == (told.id, "resolved")


@pytest.mark.parametrize("state", [b"garbage", packed_state(b"garbage"), packed_state(b"\x80")])
def test_a_damaged_state_is_said_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, state: bytes
) -> None:
    sim = Killed(tmp_path)
    sim.run(5)
    sim.loop.close()
    begin_with(tmp_path, lambda _: state)
    assert restore(tmp_path, Config()).events > 5
    assert "the engine's state" in caplog.text


LARGE = 1 << 64
"""One more than MessagePack can hold."""


def test_a_number_that_cannot_be_packed_costs_neither_events_nor_incidents(tmp_path: Path) -> None:
    sim = Killed(tmp_path)
    sim.run(60)
    sim.stick(2)
    sim.run(30)
    told = the_incident(sim)
    sim.engine.view.generations = LARGE
    sim.full()
    sim.run(5)
    (note,) = sim.notes()
    assert note.startswith("what was learned of the jobs will not outlive a restart")
    assert sim.kill().events > 5
    assert sim.incidents() == (told,)


def test_incidents_that_cannot_be_packed_cost_no_event(tmp_path: Path) -> None:
    sim = Killed(tmp_path)
    sim.run(5)
    sim.engine.store.number = LARGE
    sim.full()
    sim.run(5)
    (note,) = sim.notes()
    assert note.startswith("what is known of the incidents will not outlive a restart")
    assert sim.kill().events > 10, "the segment before gives the state"


def noisy(sim: Sim) -> int:
    """Bytes of the snapshot of an engine whose nodes have long series."""
    telemetry = sim.engine.view.telemetry
    for node in sim.engine.view.nodes:
        series = telemetry.nodes.setdefault(node, NodeTelemetry())
        for at in range(300):
            values = {f'loss{{disk="{number}"}}': math.sin(at + number) for number in range(40)}
            (batch,) = sampled(values)
            series.add(batch, sim.now - 1500 + 5 * at)
    return len(sim.engine.state.packed())


def test_a_state_too_large_for_the_log_leaves_out_the_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sim = Killed(tmp_path)
    sim.run(60)
    sim.stick(2)
    sim.run(30)
    told = the_incident(sim)
    monkeypatch.setattr(engine_loop, "MOST_STATE", noisy(sim) // 2)
    for _ in range(3):
        sim.full()
        sim.run(1)
    (note,) = sim.notes()
    assert note.startswith("the nodes' metrics of the last minutes will not outlive a restart")
    sim.kill()
    assert sim.incidents() == (told,)
    assert sim.engine.view.jobs["job", 0].phase() == "train"
    assert not sim.engine.view.telemetry.size
    # The jobs themselves are too large.
    monkeypatch.setattr(engine_loop, "MOST_STATE", len(sim.engine.state.of_incidents().packed()))
    sim.full()
    sim.run(1)
    sim.kill()
    assert sim.incidents() == (told,)
    assert "only the incidents are taken over" in caplog.text


def test_the_size_of_the_series_is_known_without_packing_them() -> None:
    sim = Sim()
    sim.run(5)
    before = len(sim.engine.state.packed()) - sim.engine.view.telemetry.size
    grown = noisy(sim) - sim.engine.view.telemetry.size
    assert sim.engine.view.telemetry.size > 10 * (grown - before)


def test_series_that_have_no_place_beside_the_ranks_are_not_packed_to_learn_it() -> None:
    sim = Sim()
    sim.run(5)
    noisy(sim)
    series = sim.engine.view.telemetry
    packed = list[str]()

    class Watched(HeldNode):
        def packed(self) -> bytes:
            packed.append("a node's")
            return super().packed()

    def kept(most_bytes: int) -> set[str]:
        held = {node_id: Watched(node, encode) for node_id, node in series.nodes.items()}
        state = StateCut(EngineState(), held, most_bytes, threading.Lock()).packed()
        return set(msgspec.msgpack.decode(state)["cluster"]["telemetry"]["nodes"])

    def encode(value: object) -> bytes:
        return msgspec.msgpack.encode(value, enc_hook=methodcaller("packed"))

    whole = len(encode(series.nodes))
    least = sum(Watched(node, encode).least_bytes for node in series.nodes.values())
    assert whole / 2 < least < whole
    assert kept(least - 1) == set()
    assert not packed
    assert kept(whole + len(EngineState().packed())) == set(series.nodes)
    assert len(packed) == len(series.nodes)


def spoilt(folder: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest segment's state, or the segment, is of no use."""
    path = segments(folder)[-1]
    if how == "state":
        begin_with(folder, lambda _: b"garbage")
    elif how == "too large":
        header, rest = path.read_bytes().split(b"\n", 1)
        # As many events as no segment may have, and the header is whole.
        most = max(file.stat().st_size for file in segments(folder))
        path.write_bytes(header + b"\n" + rest + b" " * most)
        monkeypatch.setattr(event_log, "MOST_UNPACKED", most)
    else:
        path.write_bytes(b"garbage")


@pytest.mark.parametrize("how", ["state", "too large", "garbage"])
def test_where_the_newest_segment_is_of_no_use_the_incidents_are_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    sim = Killed(tmp_path)
    sim.run(60)
    sim.stick(2)
    sim.run(30)
    told = the_incident(sim)
    sim.full()
    sim.run(5)
    sim.full()
    sim.run(5)
    sim.loop.close()
    spoilt(tmp_path, how, monkeypatch)
    assert sim.kill().events == 0 or how != "too large"
    assert sim.incidents() == (told,)
    assert sim.engine.view.jobs["job", 0].phase() == "train"


def test_a_segment_that_is_lost_before_one_without_a_state_costs_no_incident(
    tmp_path: Path,
) -> None:
    sim = Killed(tmp_path)
    sim.run(60)
    sim.stick(2)
    sim.run(30)
    told = the_incident(sim)
    for _ in range(3):
        sim.full()
        sim.run(5)
    sim.loop.close()
    begin_with(tmp_path, lambda _: b"")
    segments(tmp_path)[-2].write_bytes(b"garbage")
    restored = restore(tmp_path, Config())
    assert [i.id for i in restored.engine.incidents()] == [told.id]
    assert restored.engine.store.next_id() == "0002"


def test_a_segment_to_which_no_state_comes_ends_before_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "MOST_UNPACKED", 3000)
    monkeypatch.setattr(event_log, "LAST_EVENT_BYTES", 1000)
    log = event_log.EventLog(tmp_path, segment_bytes=1000)
    for number in range(200):
        log.append(Tick(time=float(number)), b"state" if not number else b"")
    log.close()
    read = [read_segment(path) for path in segments(tmp_path)]
    assert [event.time for _, events in read for event in events] == list(map(float, range(200)))
    assert all(len(events) < 100 for _, events in read)

"""An event log is judged anew: by the same version the same comes out, and else what differs."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.event_log.log import (
    LOG_VERSION,
    EventLog,
    read_segment,
    segments,
)
from ray_sentinel.actors.coordinator.event_log.replay import RecordedLog, recorded_logs
from ray_sentinel.config import Config, HangConfig
from ray_sentinel.engine.events import (
    AnyEvent,
    CaptureDone,
    IncidentTold,
    RecorderExplained,
    StacksTaken,
)
from ray_sentinel.engine.rules.held_ranks import RankStopped
from ray_sentinel.errors import InputError
from tests.unit.actors.test_repeated_recovery import Killed

EVENTS = Path(__file__).parents[2] / "fixtures/events"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a coordinator: rank 3 stands still, goes on, and a minute later rank 1 does. It is
    killed between the two, so that there are several segments with a state."""
    folder = tmp_path_factory.mktemp("log")
    sim = Killed(folder, attached=True)
    sim.run(30)
    sim.ranks[3].stuck = True
    sim.run(30)
    sim.ranks[3].stuck = False
    sim.run(40)
    sim.kill()
    sim.run(20)
    sim.ranks[1].stuck = True
    sim.run(30)
    sim.ranks[1].stuck = False
    sim.run(40)
    sim.loop.close()
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(recorded, tmp_path / "events/d"))


def rewritten(folder: Path, change: Callable[[AnyEvent], AnyEvent]) -> None:
    """The log with each event as ``change`` gives it."""
    parts = [read_segment(path) for path in segments(folder)]
    for path in segments(folder):
        path.unlink()
    for number, (header, events) in enumerate(parts, start=1):
        lines = [msgspec.json.encode(header), *map(event_log.encoded, map(change, events))]
        (folder / f"{number:06d}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def test_the_same_version_tells_the_same(folder: Path) -> None:
    log = RecordedLog(folder)
    result = log.replay(Config())
    assert [one.then and one.then.kind for one in result.incidents] == ["host-stuck"] * 2
    assert [one.differences for one in result.incidents] == [(), ()]
    assert [one.notes for one in result.incidents] == [(), ()]
    assert result.problems == ()
    for told in log.reported:
        (one,) = log.replay(Config(), told).incidents
        assert (one.then, one.differences, one.notes) == (told, (), ())


def test_a_rule_that_fails_is_among_the_problems(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a rule divided")

    monkeypatch.setattr(RankStopped, "evaluate", broken)
    result = RecordedLog(folder).replay(Config())
    wanted = "the engine failed in rank.stopped (ZeroDivisionError: a rule divided)"
    assert result.problems == (wanted,), "once, however often it fails"


def test_one_incident_is_judged_from_the_segment_before_it(folder: Path) -> None:
    log = RecordedLog(folder)
    second = log.reported[1]
    result = log.replay(Config(), second)
    assert log.reported[0].suspected_at < result.begin < second.suspected_at
    assert result.events < log.replay(Config()).events


def test_what_was_told_is_not_taken_for_what_would_be_told(folder: Path) -> None:
    """As if another version had written the log, which named another kind."""

    def other(event: AnyEvent) -> AnyEvent:
        if not isinstance(event, IncidentTold):
            return event
        told = msgspec.structs.replace(event.incident, kind="cpu-spin", summary="it spins")
        return msgspec.structs.replace(event, incident=told)

    rewritten(folder, other)
    for one in RecordedLog(folder).replay(Config()).incidents:
        assert one.now is not None
        assert one.now.kind == "host-stuck"
        assert one.differences == ("kind", "sentence")


def test_answers_find_their_case_though_incidents_have_other_numbers(folder: Path) -> None:
    """Another version had told two more incidents before, so all its numbers are higher."""

    def renumbered(event: AnyEvent) -> AnyEvent:
        if isinstance(event, IncidentTold):
            number = f"{int(event.incident.id) + 2:04d}"
            told = msgspec.structs.replace(event.incident, id=number)
            return msgspec.structs.replace(event, incident=told)
        if isinstance(event, StacksTaken | RecorderExplained | CaptureDone) and event.incident:
            return msgspec.structs.replace(event, incident=f"{int(event.incident) + 2:04d}")
        return event

    for path in segments(folder)[1:]:
        path.unlink()  # its state has the numbers as they were
    rewritten(folder, renumbered)
    (one,) = RecordedLog(folder).replay(Config()).incidents
    assert one.then is not None
    assert one.now is not None
    assert (one.then.id, one.now.id, one.differences) == ("0003", "0001", ())


def test_an_incident_that_is_not_told_any_more_is_said_to_be(folder: Path) -> None:
    """Silence counts far later now: the rank goes on before."""
    patient = Config(hang=HangConfig(silence_seconds=300.0))
    result = RecordedLog(folder).replay(patient)
    assert [one.now for one in result.incidents] == [None, None]
    assert [one.differences for one in result.incidents] == [("told",), ("told",)]


def test_a_log_whose_beginning_was_pruned_says_so(folder: Path) -> None:
    """The first segment is gone, in which the first incident began and ended."""
    for path in segments(folder)[:-1]:
        path.unlink()
    result = RecordedLog(folder).replay(Config())
    first, second = result.incidents
    assert first.notes == ("not judged anew: all of it lies before the events that are left",)
    assert (second.differences, second.notes) == ((), ())


def test_an_incident_that_began_before_the_log_does_says_so(tmp_path: Path) -> None:
    sim = Killed(tmp_path / "log", attached=True)
    sim.run(30)
    sim.ranks[3].stuck = True
    sim.run(30)
    sim.kill()
    sim.run(10)
    sim.loop.close()
    segments(tmp_path / "log")[0].unlink()
    (one,) = RecordedLog(tmp_path / "log").replay(Config()).incidents
    assert one.then is not None
    assert one.now is not None
    assert one.now.kind == one.then.kind
    assert "its beginning is not in the events that are left" in one.notes[0]


def test_a_cut_segment_is_read_as_far_as_it_goes(folder: Path) -> None:
    last = segments(folder)[-1]
    data = last.read_bytes() if last.suffix == ".jsonl" else gzip.decompress(last.read_bytes())
    last.unlink()
    packed = gzip.compress(data)
    (folder / "000009.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    result = RecordedLog(folder).replay(Config())
    assert any("could be read only in part" in problem for problem in result.problems)
    assert result.incidents[0].differences == ()


def test_a_missing_segment_is_told_and_the_state_after_it_taken(folder: Path) -> None:
    last = segments(folder)[-1]
    last.rename(folder / f"000007{last.name[6:]}")
    result = RecordedLog(folder).replay(Config())
    assert any("are missing" in problem for problem in result.problems)
    assert [one.differences for one in result.incidents] == [(), ()]


def test_a_log_of_a_newer_version_names_the_remedy(folder: Path) -> None:
    for path in segments(folder):
        path.unlink()
    EventLog(folder).close()
    header = msgspec.json.encode(event_log.SegmentHeader(version=LOG_VERSION + 1))
    (folder / "000001.jsonl").write_bytes(header + b"\n")
    with pytest.raises(InputError, match=r"newer ray_sentinel.*install that version"):
        RecordedLog(folder)


@pytest.mark.parametrize("name", ["before_told", "before_states/open", "before_states/resolved"])
def test_logs_of_older_versions_are_judged(name: str) -> None:
    (one,) = RecordedLog(EVENTS / name).replay(Config()).incidents
    assert one.then is not None
    assert one.now is not None
    assert one.then.kind == one.now.kind == "host-stuck"
    assert set(one.differences) <= {"sentence"}


def test_a_number_that_was_fitted_anew_is_no_other_verdict() -> None:
    (one,) = RecordedLog(EVENTS / "before_told").replay(Config()).incidents
    assert one.then is not None
    assert one.then.verdict is not None
    older = msgspec.structs.replace(one.then.verdict, confidence=0.123)
    then = msgspec.structs.replace(one.then, verdict=older)
    restated = msgspec.structs.replace(one, then=then)
    assert restated.is_fitted_anew
    assert "confidence" not in restated.differences
    # If a source puts something else on the culprit, it is another verdict.
    items = tuple(msgspec.structs.replace(i, weight=i.weight * 0.5) for i in older.evidence)
    then = msgspec.structs.replace(then, verdict=msgspec.structs.replace(older, evidence=items))
    other = msgspec.structs.replace(one, then=then)
    assert not other.is_fitted_anew
    assert "confidence" in other.differences


def test_logs_are_found_in_a_log_dir(folder: Path) -> None:
    assert recorded_logs(folder) == [folder]
    assert recorded_logs(folder.parent) == [folder]
    assert recorded_logs(folder.parents[1]) == [folder]
    assert recorded_logs(folder.parents[2] / "nowhere") == []


def test_a_pipe_in_a_segments_place_holds_nobody_up(folder: Path) -> None:
    first, *others = segments(folder)
    first.unlink()
    os.mkfifo(first)
    assert segments(folder) == others

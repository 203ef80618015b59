"""What slowed a job down before an incident is judged anew in a replay, by the look of then."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.actors.coordinator.event_log import evidence_files
from ray_sentinel.actors.coordinator.event_log.log import read
from ray_sentinel.actors.coordinator.event_log.replay import RecordedLog
from ray_sentinel.actors.coordinator.gathering import judged_evidence, straggler_looks
from ray_sentinel.actors.coordinator.gathering.agents import Agents
from ray_sentinel.actors.coordinator.gathering.cluster_dumps import ClusterDumps
from ray_sentinel.actors.coordinator.gathering.group_book import GroupBook
from ray_sentinel.actors.coordinator.gathering.judged_evidence import ArrivalEvidence
from ray_sentinel.actors.coordinator.gathering.straggler_looks import StragglerLooks
from ray_sentinel.cli.main import main
from ray_sentinel.clock import Clock, FakeClock, SteadyClock
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, AskArrivals, Publish
from ray_sentinel.engine.events import (
    AnyEvent,
    KeptEvidence,
    StragglersFound,
    StragglersKept,
    Tick,
)
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.reduced import reduce
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.straggler import StragglerFacts, StragglerStatus
from tests.unit.actors.test_repeated_recovery import Killed, SimClock
from tests.unit.actors.test_replay import rewritten
from tests.unit.evidence.stragglers.test_explain import RANKS, dumps_of

EVENTS = Path(__file__).parents[2] / "fixtures/events"
SLOW = 3
DUMPS = {rank: reduce(data) for rank, data in dumps_of(1, 40, {SLOW: 1.5}).items()}


class NoAgents(Agents):
    """Nobody is asked: ``Recorders`` answers."""

    def __init__(self) -> None:
        pass


class Recorders(ClusterDumps):
    """All ranks' recorders, as they are at every look."""

    def __init__(self, dumps: dict[int, bytes]) -> None:
        super().__init__(NoAgents())
        self._of_ranks = dumps

    def reduced(self, ranks: Iterable[object]) -> tuple[dict[int, dict[int, bytes]], list[str]]:
        return ({0: self._of_ranks} if self._of_ranks else {}), []


def looks_of(clock: Clock, incidents: Iterable[Incident] = ()) -> StragglerLooks:
    return StragglerLooks(Recorders(DUMPS), GroupBook(), clock, incidents)


class Looked(Killed):
    """A job that is looked at once a minute, as the executor does it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, world=RANKS, attached=True)
        self.looks = looks_of(SteadyClock(SimClock(self)))
        self.todo: list[tuple[float, Callable[[], object]]] = []

    def answer(self, action: AnyAction) -> None:
        if isinstance(action, AskArrivals):
            self.later(lambda: self.looks.look(action, self.loop.feed))
        elif isinstance(action, Publish):
            self.later(lambda: self.keep(action.incident))
        super().answer(action)

    def later(self, do: Callable[[], object]) -> None:
        """In 0.2 s: the engine's lock is held now."""
        self.todo.append((self.now + 0.2, do))

    def keep(self, incident: Incident) -> None:
        if (event := self.looks.kept(incident)) is not None:
            self.loop.feed(event)

    def run(self, seconds: float) -> None:
        for _ in range(round(2 * seconds)):
            super().run(0.5)
            due = [do for at, do in self.todo if at <= self.now]
            self.todo = [one for one in self.todo if one[0] > self.now]
            for do in due:
                do()


def run_of(folder: Path) -> Looked:
    """Rank 3 is slow for minutes, and then stands still."""
    sim = Looked(folder)
    sim.run(200)
    sim.stick(SLOW)
    sim.run(20)
    return sim


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of that run; tests have copies."""
    sim = run_of(tmp_path_factory.mktemp("recorded"))
    sim.loop.close()
    return sim.folder


@pytest.fixture(scope="module")
def recorded_beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the evidence in a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence_files, "SMALL", 64)
        sim = run_of(tmp_path_factory.mktemp("recorded"))
        sim.loop.close()
    return sim.folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "events/d"))


@pytest.fixture
def beside(recorded_beside: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded_beside, tmp_path / "events/d"))


def other(*_: object, **__: object) -> StragglerFacts:
    return StragglerFacts(kind="slow-rank", ranks=(5,), cost=0.5, confidence=0.9)


def judged_by(judge: Callable[..., StragglerFacts], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged_evidence.stragglers, "explain", judge)


def test_the_same_version_finds_the_same_rank_slow(folder: Path) -> None:
    (one,) = RecordedLog(folder).replay(Config()).incidents
    assert (one.differences, one.notes) == ((), ())
    assert one.then is not None
    assert one.then.straggler is not None
    assert one.then.straggler.ranks == (SLOW,)
    assert one.now is not None
    assert one.now.straggler == one.then.straggler


def test_only_the_look_that_an_incident_is_told_with_is_kept(folder: Path) -> None:
    events = read(folder)[1]
    looks = [event for event in events if isinstance(event, StragglersFound)]
    (kept,) = (event for event in events if isinstance(event, StragglersKept))
    assert len(looks) == 3
    assert kept.at == looks[-1].time
    assert ArrivalEvidence.unpacked(kept.judged_from.data).dumps == DUMPS
    (one,) = RecordedLog(folder).reported
    assert RecordedLog(folder).replay(Config(), one).incidents[0].differences == ()


@pytest.mark.parametrize("name", ["folder", "beside"])
def test_another_judge_names_another_rank_and_the_difference_is_printed(
    name: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = request.getfixturevalue(name)
    judged_by(other, monkeypatch)
    (one,) = RecordedLog(log).replay(Config()).incidents
    assert one.differences == ("straggler",)
    assert one.now is not None
    assert one.now.straggler is not None
    assert [cost for _, cost in one.now.straggler.heat][-1] == 50.0
    assert len(one.now.straggler.heat) == 3
    assert main(["incidents", "replay", str(log)]) == 1
    printed = capsys.readouterr().out
    assert "differs in straggler" in printed
    assert f"then: rank {SLOW} cost " in printed
    assert "now:  rank 5 cost 50.0 % of the time before" in printed


def test_where_nobody_is_named_nothing_is_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["incidents", "replay", str(folder)]) == 0
    assert f"straggler  the same: rank {SLOW} cost" in capsys.readouterr().out
    judged_by(lambda *_, **__: StragglerFacts(kind="even"), monkeypatch)
    assert main(["incidents", "replay", str(folder)]) == 1
    assert "now:  nobody" in capsys.readouterr().out


def test_a_look_that_was_kept_once_is_read_by_every_later_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = RecordedLog(EVENTS / "with_stragglers")
    (one,) = log.replay(Config()).incidents
    assert one.notes == ()
    assert one.now is not None
    assert one.now.straggler is not None
    assert one.now.straggler.ranks == (SLOW,)
    judged_by(other, monkeypatch)
    (one,) = log.replay(Config()).incidents
    assert "straggler" in one.differences


def test_a_missing_file_is_told_and_the_verdict_of_then_stays(
    beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.listdir(beside):
        if name.endswith(".evidence"):
            (beside / name).unlink()
    judged_by(other, monkeypatch)
    (one,) = RecordedLog(beside).replay(Config()).incidents
    assert one.differences == ()
    (note,) = one.notes
    assert note.startswith("stragglers could not be judged anew")
    assert "is not there" in note


@pytest.mark.parametrize("damaged", [b"", b"torn", b"\x81\xa5dumps\x91\xa1x"])
def test_damaged_evidence_is_told(folder: Path, damaged: bytes) -> None:
    def torn(event: AnyEvent) -> AnyEvent:
        if not isinstance(event, StragglersKept):
            return event
        return msgspec.structs.replace(event, judged_from=KeptEvidence(data=damaged))

    rewritten(folder, torn)
    (one,) = RecordedLog(folder).replay(Config()).incidents
    assert one.differences == ()
    (note,) = one.notes
    assert note.startswith("stragglers could not be judged anew")


def test_logs_of_versions_that_kept_no_look_are_taken_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(
        folder,
        lambda event: Tick(time=event.time) if isinstance(event, StragglersKept) else event,
    )
    judged_by(other, monkeypatch)
    (one,) = RecordedLog(folder).replay(Config()).incidents
    assert (one.differences, one.notes) == ((), ())


def test_what_another_look_showed_is_not_taken_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if an incident of the same number had been told before."""

    def earlier(event: AnyEvent) -> AnyEvent:
        return (
            msgspec.structs.replace(event, at=event.at - 60.0)
            if isinstance(event, StragglersKept)
            else event
        )

    rewritten(folder, earlier)
    judged_by(other, monkeypatch)
    (one,) = RecordedLog(folder).replay(Config()).incidents
    assert one.differences == ()


def test_a_coordinator_that_was_started_after_the_look_says_that_it_has_it_no_more(
    tmp_path: Path,
) -> None:
    sim = Looked(tmp_path)
    sim.run(200)
    sim.kill()
    sim.looks = looks_of(SteadyClock(SimClock(sim)))
    sim.run(1)
    sim.stick(SLOW)
    sim.run(30)
    sim.loop.close()
    (one,) = RecordedLog(tmp_path).replay(Config()).incidents
    assert one.differences == ()
    (note,) = one.notes
    assert "it was started after that look" in note


ACTION = AskArrivals(job="job", attempt=0, ranks=(), offsets={})


def told_of(number: int, at: float, job: str = "job") -> Incident:
    return Incident(
        id=f"{number:04d}",
        job=job,
        attempt=0,
        kind="host-stuck",
        severity="critical",
        state="confirmed",
        summary="it stands still",
        rule="silence",
        suspected_at=at,
        straggler=StragglerStatus(kind="even", at=at),
    )


def test_an_incident_is_answered_once_and_those_of_the_previous_coordinator_never() -> None:
    clock = FakeClock(1000.0)
    looks = looks_of(clock, [told_of(1, 1000.0)])
    looks.look(ACTION, lambda event: 0)
    assert looks.kept(told_of(1, 1000.0)) is None
    first = looks.kept(told_of(2, 1000.0))
    assert first is not None
    assert first.judged_from.data
    assert looks.kept(told_of(2, 1000.0)) is None
    shifted = msgspec.structs.replace(told_of(3, 1007.0), clock_shift=7.0)
    third = looks.kept(shifted)
    assert third is not None
    assert (third.at, bool(third.judged_from.data)) == (1000.0, True)
    later = looks.kept(told_of(4, 1060.0))
    assert later is not None
    assert later.judged_from.left_out
    nothing = msgspec.structs.replace(told_of(5, 1000.0), straggler=None)
    assert looks.kept(nothing) is None


def test_looks_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    size = ArrivalEvidence(dumps=DUMPS, hosts={}, offsets={}).size
    monkeypatch.setattr(straggler_looks, "HELD_BYTES", 2 * size)
    clock = FakeClock(1000.0)
    looks = looks_of(clock)
    for number in range(4):
        looks.look(msgspec.structs.replace(ACTION, job=f"job{number}"), lambda event: 0)
    held = [looks.kept(told_of(number, 1000.0, f"job{number}")) for number in range(4)]
    assert [bool(one and one.judged_from.data) for one in held] == [False, False, True, True]
    clock.advance(straggler_looks.HELD_SECONDS + 1)
    looks.look(ACTION, lambda event: 0)
    gone = looks.kept(told_of(9, 1000.0, "job3"))
    assert gone is not None
    assert gone.judged_from.left_out


def test_what_nobody_answers_is_found_to_be_nothing() -> None:
    fed: list[AnyEvent] = []
    looks = StragglerLooks(Recorders({}), GroupBook(), FakeClock(1000.0))
    looks.look(ACTION, lambda event: fed.append(event) or len(fed))  # type: ignore[func-returns-value]
    assert fed == [StragglersFound(time=1000.0, job="job", attempt=0, facts=None)]


def test_a_look_comes_back_as_it_was_and_equal_dumps_are_written_once() -> None:
    same = dict.fromkeys(range(50), DUMPS[0])
    evidence = ArrivalEvidence(dumps=same, hosts={0: "a", 1: "b"}, offsets={1: 0.25})
    packed = evidence.packed()
    assert ArrivalEvidence.unpacked(packed) == evidence
    assert len(packed) < evidence.size + 500
    assert evidence.size == len(DUMPS[0])


@pytest.mark.parametrize(
    "packed",
    [
        {"dumps": [], "places": {0: 0}},
        {"dumps": [b"x"], "places": {0: -1}},
        {"dumps": [b"ray-sentinel recorder 9\n"], "places": {0: 0}},
        {"dumps": [], "places": {1 << 30: 0}},
        {"dumps": [], "places": {}, "offsets": {0: float("nan")}},
        {"dumps": [], "places": {}, "offsets": {0: float("inf")}},
        {"dumps": [], "places": {}, "hosts": {0: 7}},
    ],
)
def test_what_this_version_cannot_read_is_no_look(packed: object) -> None:
    with pytest.raises(InputError):
        ArrivalEvidence.unpacked(msgspec.msgpack.encode(packed))

"""Flight recorders and NCCL RAS are judged anew in a replay, by what they were judged by then."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.actors.coordinator.event_log import evidence_files
from ray_sentinel.actors.coordinator.event_log.evidence_files import kept
from ray_sentinel.actors.coordinator.event_log.log import read, segments
from ray_sentinel.actors.coordinator.event_log.replay import RecordedLog
from ray_sentinel.actors.coordinator.gathering import judged_evidence
from ray_sentinel.actors.coordinator.gathering.judged_evidence import (
    EVIDENCE,
    MOST_ANSWERS,
    MOST_RANKS,
    DumpEvidence,
    PollEvidence,
    tag_of,
    with_verdict,
)
from ray_sentinel.actors.coordinator.gathering.ras_witness import RasWitness
from ray_sentinel.capture.ras import RasPolls
from ray_sentinel.cli.main import main
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, AskRas, AskRecorder
from ray_sentinel.engine.events import KeptEvidence, RasExplained, RecorderExplained
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.reduced import MARK, reduce
from ray_sentinel.evidence.flight_recorder.reduced import read as read_dump
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.model.recorder import RecorderFacts
from tests.support.ras_sim.agents import PollingAgents
from tests.support.ras_sim.job import Job
from tests.support.ras_sim.render import as_json
from tests.support.recorder_sim.dumps import NCCL, write
from tests.support.recorder_sim.faults import simulate
from tests.unit.actors.test_repeated_recovery import Killed
from tests.unit.actors.test_replay import rewritten

EVENTS = Path(__file__).parents[2] / "fixtures/events"
CULPRIT = 3


def dumps() -> dict[int, bytes]:
    """Of eight ranks, of which one stopped."""
    case = simulate("dp8", "stop between", 3)
    assert case.culprits == {CULPRIT}
    written = write(case.machine, NCCL)
    return {rank: reduce(data, "judged") for rank, data in written.items()}


class Witnessed(Killed):
    """A job whose ranks have recorders, and whose NCCL has a RAS service that was polled before."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, world=8)
        self.dumps = dumps()
        self.job = Job(1, 2, 4)
        for peer, rank in zip(self.job.peers, self.ranks, strict=True):
            peer.host, peer.pid = rank.node.replace("n", "host"), rank.pid
        self.job.run(20)
        self.job.world.launch("AllReduce", 1, but=(CULPRIT,))
        self.witness = RasWitness(PollingAgents(self.poll))

    def poll(self) -> RasPolls:
        self.job.wait(5)
        return RasPolls(polls=(as_json(self.job).encode(),))

    def answer(self, action: AnyAction) -> None:
        if isinstance(action, AskRecorder):
            evidence = DumpEvidence.of(action, {0: self.dumps})
            answer = RecorderExplained(
                time=self.now + 0.2,
                incident=action.incident,
                facts=evidence.explain(),
                judged_from=kept(evidence.packed()),
            )
            self.pending.append((answer.time, answer))
        elif isinstance(action, AskRas):
            told = self.witness(action)
            assert told is not None
            self.pending.append((self.now + 0.2, told))
        else:
            super().answer(action)


def recorded(folder: Path) -> Path:
    """The log of a job whose rank 3 stands where all others stand, as far as stacks show."""
    sim = Witnessed(folder)
    sim.run(30)
    for rank in sim.ranks:
        sim.stick(rank.number, where=("main (train.py:1)", "all_reduce (c10d.py:9)"))
        rank.activity, rank.waits = "collective-wait", True
    sim.run(40)
    assert sim.named() == [CULPRIT]
    sim.loop.close()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return recorded(tmp_path / "events/d")


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with the evidence in files."""
    monkeypatch.setattr(evidence_files, "SMALL", 64)
    return recorded(tmp_path / "events/d")


def timid_recorders(*_: object, **__: object) -> RecorderFacts:
    return RecorderFacts(kind="cannot-tell", strength=0.3, ranks=tuple(range(8)))


def timid_ras(*_: object, **__: object) -> RasFacts:
    return RasFacts(kind="cannot-tell", strength=0.3, polls=2)


def test_the_same_version_judges_the_same(folder: Path) -> None:
    (one,) = RecordedLog(folder).replay(Config()).incidents
    assert (one.differences, one.notes) == ((), ())
    sources = {item.source for item in one.now.verdict.evidence}  # type: ignore[union-attr]
    assert {"flight-recorder", "nccl-ras"} <= sources


def test_evidence_in_files_is_judged_the_same(beside: Path) -> None:
    events = read(beside)[1]
    found = [e.judged_from for e in events if isinstance(e, RecorderExplained | RasExplained)]
    assert found
    assert all(one is not None and one.file and not one.data for one in found)
    (one,) = RecordedLog(beside).replay(Config()).incidents
    assert (one.differences, one.notes) == ((), ())


@pytest.mark.parametrize("name", ["folder", "beside"])
def test_other_judges_give_another_verdict_and_the_difference_is_printed(
    name: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = request.getfixturevalue(name)
    monkeypatch.setattr(judged_evidence, "explain_recorders", timid_recorders)
    (one,) = RecordedLog(log).replay(Config()).incidents
    assert "confidence" in one.differences
    monkeypatch.setattr(judged_evidence, "explain_in_process", timid_ras)
    (one,) = RecordedLog(log).replay(Config()).incidents
    assert "culprits" in one.differences
    assert main(["incidents", "replay", str(log)]) == 1
    printed = capsys.readouterr().out
    assert "differs in kind, culprits" in printed
    assert f"then: rank {CULPRIT} on host1" in printed
    assert "now:  nobody" in printed


def test_evidence_that_was_kept_once_is_read_by_every_later_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = RecordedLog(EVENTS / "with_evidence")
    (one,) = log.replay(Config()).incidents
    assert one.now is not None
    assert one.now.verdict is not None
    assert [culprit.rank for culprit in one.now.verdict.culprits] == [CULPRIT]
    assert one.notes == ()
    monkeypatch.setattr(judged_evidence, "explain_recorders", timid_recorders)
    monkeypatch.setattr(judged_evidence, "explain_in_process", timid_ras)
    (one,) = log.replay(Config()).incidents
    assert "culprits" in one.differences


def test_a_missing_file_is_told_and_the_verdict_of_then_stays(
    beside: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in os.listdir(beside):
        if name.endswith(".evidence"):
            (beside / name).unlink()
    monkeypatch.setattr(judged_evidence, "explain_recorders", timid_recorders)
    monkeypatch.setattr(judged_evidence, "explain_in_process", timid_ras)
    (one,) = RecordedLog(beside).replay(Config()).incidents
    assert one.differences == ()
    assert any(note.startswith("flight recorders could not be judged") for note in one.notes)
    assert any(note.startswith("NCCL RAS could not be judged") for note in one.notes)
    assert main(["incidents", "replay", str(beside)]) == 1
    assert "the same, as far as it could be judged anew" in capsys.readouterr().out


def test_logs_of_versions_that_kept_no_evidence_are_taken_as_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(
        folder,
        lambda event: (
            msgspec.structs.replace(event, judged_from=None)
            if isinstance(event, RecorderExplained | RasExplained)
            else event
        ),
    )
    assert b'judged_from":null' in segments(folder)[0].read_bytes()
    monkeypatch.setattr(judged_evidence, "explain_recorders", timid_recorders)
    (one,) = RecordedLog(folder).replay(Config()).incidents
    assert (one.differences, one.notes) == ((), ())


def test_dumps_come_back_as_they_were_and_equal_ones_are_written_once() -> None:
    made = dumps()
    evidence = DumpEvidence(sets=(made, {0: made[0]}), world_size=8, failed=True, overrun=(2,))
    packed = evidence.packed()
    assert DumpEvidence.unpacked(packed) == evidence
    assert len(packed) < sum(map(len, made.values())) + 200
    assert DumpEvidence.unpacked(packed).explain() == evidence.explain()


@pytest.mark.parametrize(
    ("name", "overrun", "culprit"),
    [("gloo_left_loop", (), 5), ("gloo_mismatch", (), 1), ("gloo_failed_small", (4,), 4)],
)
def test_real_dumps_are_judged_the_same_after_they_were_kept(
    name: str, overrun: tuple[int, ...], culprit: int
) -> None:
    files = (EVENTS.parent / "flight_recorder" / name).glob("trace_*.json")
    made = {int(path.stem[6:]): reduce(path.read_bytes(), "judged") for path in files}
    evidence = DumpEvidence(
        sets=(made,),
        world_size=len(made) + len(overrun),
        failed=bool(overrun),
        overrun=overrun,
    )
    event = RecorderExplained(
        time=1.0, incident="0001", facts=None, judged_from=kept(evidence.packed())
    )
    again = with_verdict(event, DumpEvidence.unpacked(evidence.packed()).explain())
    assert again.facts == evidence.explain()
    assert [one.rank for one in evidence.explain().culprits] == [culprit]


def test_polls_come_back_as_they_were() -> None:
    evidence = PollEvidence(polls=(b"{}" * 1000, b"x"), ranks=(("host", 7, 3),))
    assert PollEvidence.unpacked(evidence.packed()) == evidence
    assert len(evidence.packed()) < 200


@pytest.mark.parametrize(
    "evidence",
    [
        {"dumps": [], "sets": []},
        {"dumps": [], "sets": [{0: 0}]},
        {"dumps": [b"x"], "sets": [{0: -1}]},
        {"dumps": [b"ray-sentinel recorder 9\n"], "sets": [{0: 0}]},
        {"dumps": [b"ray-sentinel recorder 2\n"], "sets": [{MOST_RANKS + 1: 0}]},
        {"dumps": [b"ray-sentinel recorder 2\n"], "sets": [{0: 0}], "world_size": 1 << 40},
    ],
)
def test_dumps_that_this_version_cannot_read_are_no_evidence(evidence: object) -> None:
    with pytest.raises(InputError):
        DumpEvidence.unpacked(msgspec.msgpack.encode(evidence))


@pytest.mark.parametrize("kind", [RecorderExplained, RasExplained])
@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_torn_evidence_is_none(
    kind: type[RecorderExplained] | type[RasExplained], cut: int
) -> None:
    whole = DumpEvidence(sets=(dumps(),)).packed()
    if kind is RasExplained:
        whole = PollEvidence(polls=(bytes(range(200)),)).packed()
    event = kind(time=1.0, incident="0001", facts=None, judged_from=KeptEvidence())
    with pytest.raises(InputError):
        EVIDENCE[tag_of(event)].unpacked(whole[:cut]).explain()


def test_text_that_is_no_utf_8_is_named_not_raised() -> None:
    """Nor what is in a recorder's reduced form."""
    packed = PollEvidence(polls=(b"x",), ranks=(("host", 1, 0),)).packed()
    damaged = zlib.compress(zlib.decompress(packed).replace(b"host", b"\xff\xfe\xff\xfe"))
    with pytest.raises(InputError, match="cannot be read"):
        PollEvidence.unpacked(damaged)
    data = dumps()[0]
    mark, parts = data[: len(MARK)], msgspec.msgpack.decode(data[len(MARK) :])
    head = zlib.decompress(parts[0]).replace(b"default_pg", b"\xff" * len(b"default_pg"))
    assert head != zlib.decompress(parts[0])
    torn = mark + msgspec.msgpack.encode((zlib.compress(head), *parts[1:]))
    with pytest.raises(InputError, match="damaged"):
        read_dump(0, torn)


def test_many_answers_without_any_content_are_refused() -> None:
    """Each takes two bytes of a file, and hundreds of memory."""
    many = PollEvidence(polls=(b"",) * (MOST_ANSWERS + 1)).packed()
    assert len(many) < 1000
    with pytest.raises(InputError, match="length"):
        PollEvidence.unpacked(many)
    sets = msgspec.msgpack.encode({"dumps": [dumps()[0]], "sets": [{0: 0}] * 3})
    with pytest.raises(InputError, match="length"):
        DumpEvidence.unpacked(sets)

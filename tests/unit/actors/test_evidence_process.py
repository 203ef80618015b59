"""A log may be crafted or damaged: its evidence is judged in bounded memory and time, and once."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ray_sentinel import process
from ray_sentinel.actors.coordinator.event_log import evidence_process
from ray_sentinel.actors.coordinator.event_log.evidence_files import (
    LARGE,
    SMALL,
    EvidenceFiles,
    kept,
)
from ray_sentinel.actors.coordinator.event_log.evidence_process import ALL_SECONDS, EvidenceJudge
from ray_sentinel.actors.coordinator.event_log.replay import RecordedLog
from ray_sentinel.actors.coordinator.gathering import judged_evidence
from ray_sentinel.actors.coordinator.gathering.judged_evidence import (
    ArrivalEvidence,
    DumpEvidence,
    PollEvidence,
)
from ray_sentinel.clock import FakeClock
from ray_sentinel.config import Config
from ray_sentinel.engine.events import (
    AnyEvent,
    KeptEvidence,
    RasExplained,
    RecorderExplained,
    StragglersKept,
)
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.reduced import MARK, SharedDump, read, shared, weight
from tests.unit.actors.test_replay import rewritten
from tests.unit.actors.test_replay_of_witnesses import dumps, recorded

SCARCE = 96 << 20
"""Bytes of memory that a child has here beyond its program's."""
TOO_MUCH = "more than 96 MiB of memory"


def crafted(pending: int = 1, counts: int = 0, runs: int = 1) -> bytes:
    """A dump in reduced form: so many operations that wait, counters, and ranks of a group."""
    operations = [
        {
            "record": number,
            "pg": 0,
            "group": ("0", "default_pg"),
            "p2p": False,
            "collective_seq": number,
            "p2p_seq": 0,
            "op_id": number,
            "op": "all_reduce",
        }
        for number in range(pending)
    ]
    counted = [(number, "send", 1, 1) for number in range(counts)]
    configs = [("0", "0", "default_pg", [(0, 1, runs)])]
    head = ["", configs, [], operations, [], counted, True, 0]
    packed = zlib.compress(msgspec.msgpack.encode(head))
    return MARK.replace(b"1", b"2") + msgspec.msgpack.encode((packed, b"", b""))


def of_all(dump: bytes, ranks: int, world_size: int | None = None) -> KeptEvidence:
    """Evidence in which so many ranks name one dump."""
    evidence = DumpEvidence(sets=(dict.fromkeys(range(ranks), dump),), world_size=world_size)
    return kept(evidence.packed())


def told(evidence: KeptEvidence) -> RecorderExplained:
    return RecorderExplained(time=1.0, incident="0001", facts=None, judged_from=evidence)


def judge_of(folder: Path, evidence: KeptEvidence) -> EvidenceJudge:
    """In the folder of a log that has the evidence."""
    if evidence.file:
        EvidenceFiles(folder, 1 << 30).keep(evidence)
    return EvidenceJudge(folder, memory=SCARCE)


def test_a_dump_that_many_ranks_name_is_decoded_once(tmp_path: Path) -> None:
    """It has 50,000 counters, 10 MB of objects: a thousand ranks took 10 GB."""
    evidence = of_all(crafted(counts=50_000), 1000)
    assert SMALL < len(evidence.data) < 200_000
    facts = judge_of(tmp_path, evidence).facts(told(evidence))
    assert facts.kind == "waiting-outside"


def test_what_takes_too_much_memory_all_the_same_is_refused(tmp_path: Path) -> None:
    evidence = of_all(crafted(pending=400_000), 64)
    assert len(evidence.data) < LARGE // 3
    judge = judge_of(tmp_path, evidence)
    with pytest.raises(InputError, match=TOO_MUCH):
        judge.facts(told(evidence))


ZEROS = MARK + msgspec.msgpack.encode((zlib.compress(bytes(50 << 20)), b"", b""))


@pytest.mark.parametrize(
    ("evidence", "refused"),
    [
        (of_all(crafted(runs=1 << 24), 1), TOO_MUCH),
        (of_all(ZEROS, 1), TOO_MUCH),
        (of_all(crafted(), 1, world_size=1 << 20), ""),
        (of_all(crafted(), 20_000), ""),
    ],
    ids=["ranks of a group", "zeros", "a job's size", "ranks"],
)
def test_a_few_bytes_that_ask_for_much_are_not_judged_here(
    evidence: KeptEvidence, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(*_: object, **__: object) -> None:
        raise AssertionError("judged in this process")

    monkeypatch.setattr(judged_evidence, "explain_recorders", here)
    judge = judge_of(tmp_path, evidence)
    if not refused:
        assert judge.facts(told(evidence)).kind == "waiting-outside"
        return
    with pytest.raises(InputError, match=refused):
        judge.facts(told(evidence))


def test_answers_of_ras_that_unpack_to_much_are_not_unpacked_here(tmp_path: Path) -> None:
    packed = zlib.compress(msgspec.msgpack.encode({"polls": [bytes(100 << 20)]}), 9)
    assert PollEvidence.weight(packed, 1 << 20) == (1 << 20) + 1
    evidence = kept(packed)
    event = RasExplained(time=1.0, incident="0001", facts=None, judged_from=evidence)
    judge = judge_of(tmp_path, evidence)
    with pytest.raises(InputError, match="memory"):
        judge.facts(event)


def test_a_process_of_its_own_judges_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_process, "LIGHT", 0)
    recorders = DumpEvidence(sets=(dumps(),), world_size=8)
    looked = ArrivalEvidence(dumps=dumps(), hosts={0: "a"}, offsets={1: 0.5})
    polls = PollEvidence(polls=(b"no answer",))
    judge = EvidenceJudge(tmp_path)
    for event, evidence in (
        (told(recorders.kept()), recorders),
        (
            RasExplained(time=1.0, incident="0001", facts=None, judged_from=polls.kept()),
            polls,
        ),
        (
            StragglersKept(time=1.0, incident="0001", at=0.0, judged_from=looked.kept()),
            looked,
        ),
    ):
        assert judge.facts(event) == evidence.explain()


@pytest.mark.parametrize(
    ("does", "refused"),
    [
        ("kill -9 $$", "ended with status -9"),
        ("exit 3", "ended with status 3"),
        ("echo >&2; exit 1", "ended with status 1"),
        ("echo so it is >&2; exit 1", "the evidence .*: so it is$"),
        ("echo so it is >&2; exit 3", "^so it is$"),
        ("true", "cannot be read"),
        ("echo no verdict", "cannot be read"),
    ],
)
def test_a_process_that_gives_no_verdict_is_told_of(
    does: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence_process, "LIGHT", 0)
    monkeypatch.setattr(process, "python_module", lambda *_: ["sh", "-c", does])
    judge = EvidenceJudge(tmp_path)
    event = told(DumpEvidence(sets=(dumps(),)).kept())
    for _ in range(2):
        with pytest.raises(InputError, match=refused):
            judge.facts(event)


def test_what_several_events_name_is_judged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[object] = []
    really: Callable[..., object] = judged_evidence.explain_recorders

    def counted(*given: object, **how: object) -> object:
        judged.append(given)
        return really(*given, **how)

    monkeypatch.setattr(judged_evidence, "explain_recorders", counted)
    first = DumpEvidence(sets=(dumps(),)).kept()
    second = DumpEvidence(sets=(dumps(),), world_size=9).kept()
    judge = EvidenceJudge(tmp_path)
    found = [judge.facts(told(evidence)) for evidence in (first, second, first, first)]
    assert len(judged) == 2
    assert found[0] == found[2] == found[3] != found[1]


def test_remembered_verdicts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_process, "MOST_ANSWERS", 0)
    evidence = DumpEvidence(sets=(dumps(),)).kept()
    judge = EvidenceJudge(tmp_path)
    assert judge.facts(told(evidence)) == judge.facts(told(evidence))


class Slow(FakeClock):
    """Each look at it comes 500 s after the one before."""

    def monotonic(self) -> float:
        self.advance(500.0)
        return super().monotonic()


def test_all_evidence_of_a_replay_has_a_bound_in_time(tmp_path: Path) -> None:
    judge = EvidenceJudge(tmp_path, clock=Slow())
    for size in (8, 9):
        evidence = DumpEvidence(sets=(dumps(),), world_size=size).kept()
        assert judge.facts(told(evidence)) is not None
    with pytest.raises(InputError, match=f"took {ALL_SECONDS:g} s"):
        judge.facts(told(DumpEvidence(sets=(dumps(),), world_size=10).kept()))
    assert judge.facts(told(DumpEvidence(sets=(dumps(),), world_size=9).kept())) is not None


def test_evidence_in_a_line_is_bounded_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="more than any that is kept"):
        EvidenceJudge(tmp_path).facts(told(KeptEvidence(data=bytes(LARGE + 1))))


def test_a_crafted_log_is_replayed_with_the_verdicts_of_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = recorded(tmp_path / "events/d")
    evidence = of_all(crafted(pending=400_000), 2000)
    EvidenceFiles(folder, 1 << 30).keep(evidence)

    def hostile(event: AnyEvent) -> AnyEvent:
        if not isinstance(event, RecorderExplained):
            return event
        return msgspec.structs.replace(event, judged_from=KeptEvidence(file=evidence.file))

    rewritten(folder, hostile)
    monkeypatch.setattr(evidence_process, "MEMORY", SCARCE)
    (one,) = RecordedLog(folder).replay(Config()).incidents
    assert one.differences == ()
    (note,) = one.notes
    assert note.startswith("flight recorders could not be judged anew")
    assert TOO_MUCH in note


def test_a_shared_dump_reads_as_it_does_alone() -> None:
    made = dumps()
    (rank, data), *_ = made.items()
    twice = shared({7: data, 8: data, 9: next(d for d in made.values() if d != data)})
    assert isinstance(twice[7], SharedDump)
    assert twice[7] is twice[8]
    assert not isinstance(twice[9], SharedDump)
    assert [read(number, twice[number]).rank for number in (7, 8)] == [7, 8]
    alone, together = read(rank, data), read(rank, twice[7])
    assert alone == together
    assert weight(data, 1 << 20) == weight(data, 1 << 20) > len(data)


def test_a_shared_dump_that_is_damaged_says_so_for_each_rank() -> None:
    damaged = MARK + msgspec.msgpack.encode((b"x", b"x", b""))
    for data in shared({0: damaged, 1: damaged}).values():
        with pytest.raises(InputError, match="damaged"):
            read(0, data)
    with pytest.raises(InputError, match="damaged"):
        weight(damaged, 1 << 20)

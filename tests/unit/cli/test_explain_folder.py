"""``explain DIR``: everything in a folder together, as its explainers and the live engine tell."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ray_sentinel.cli.evidence_folder import read_folder
from ray_sentinel.cli.explainers.folder import answered
from ray_sentinel.cli.main import main
from ray_sentinel.engine.events import RecorderExplained, StacksTaken
from ray_sentinel.engine.incidents.evidence_case import FolderEvidence, judged
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.recorder import RecorderCulprit, RecorderFacts, RecorderWait
from ray_sentinel.report.contract import incident_json
from tests.support.engine_sim import Sim
from tests.support.stack_facts import REDUCE, elsewhere, fact

FIXTURES = Path(__file__).parents[2] / "fixtures"
SETS = sorted(path.name for path in (FIXTURES / "flight_recorder").glob("gloo_*"))
STACKS = ("gloo_plain", "gloo_async", "gloo_ddp", "gloo_mismatch")


def explained(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["explain", *words, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


@pytest.mark.parametrize("name", SETS)
def test_dumps_alone_name_whom_their_explainer_names(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(FIXTURES / "flight_recorder" / name)
    code, alone = explained(capsys, "flight-recorder", folder)
    together_code, together = explained(capsys, folder)
    assert together["culprit_ranks"] == sorted(alone["culprit_ranks"])
    assert together_code == code
    assert set(together["files"].values()) == {"flight-recorder"}
    assert together["not_recognised"] == []


@pytest.mark.parametrize("name", STACKS)
def test_stacks_without_ranks_name_whom_their_explainer_names(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(FIXTURES / "stacks" / name)
    _, alone = explained(capsys, "stacks", folder)
    code, together = explained(capsys, folder)
    assert code == 1
    named = [(one["host"], one["pid"]) for one in together["culprits"]]
    assert named == [(one["host"], one["pid"]) for one in alone["culprits"]]
    assert together["culprits"][0]["named_by"] == ["stacks"]
    assert together["kind"] == alone["kind"]


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """Dumps and stacks of one hang: rank 2, of pid 10263, sleeps; a table tells the ranks."""
    shutil.copytree(FIXTURES / "stacks/gloo_plain/plain", tmp_path / "stacks")
    shutil.copytree(FIXTURES / "flight_recorder/gloo_sleeper", tmp_path / "dumps")
    rows = [{"host": "node1", "pid": 10261 + rank, "rank": rank} for rank in range(4)]
    (tmp_path / "ranks.json").write_text(json.dumps(rows))
    return tmp_path


def test_why_shows_what_was_weighed_rank_by_rank(
    both: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, plain = explained(capsys, str(both))
    assert "why" not in plain
    _, found = explained(capsys, str(both), "--why")
    named, others = found["why"]["ranks"]
    assert (named["ranks"], named["is_named"]) == ([2], True)
    assert (others["ranks"], others["is_named"]) == ([0, 1, 3], False)
    assert others["score"] < 0 < found["why"]["named_from"] <= named["score"]
    for group in (named, others):
        assert group["score"] == pytest.approx(sum(one["weight"] for one in group["evidence"]))
        assert {one["source"] for one in group["evidence"]} == {"flight-recorder", "stacks"}
    main(["explain", str(both), "--why"])
    printed = capsys.readouterr().out
    assert "rank 2, named" in printed
    assert "ranks 0-1, 3\n" in printed


def test_why_of_stacks_without_ranks_has_nothing_weighed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, found = explained(capsys, str(FIXTURES / "stacks" / "gloo_plain"), "--why")
    assert code == 1
    assert "why" not in found


def test_witnesses_are_joined_by_rank_and_make_it_surer(
    both: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = explained(capsys, str(both))
    assert (code, found["culprit_ranks"]) == (1, [2])
    (one,) = found["culprits"]
    assert (one["host"], one["pid"]) == ("node1", 10263)
    assert one["named_by"] == ["flight-recorder", "stacks"]
    assert found["contradictions"] == []
    # The number itself ends at 98 %, which the dumps alone reach; what it is the sum of does not.
    together, dumps = (
        explained(capsys, folder, "--why")[1]["why"]["ranks"][0]
        for folder in (str(both), str(both / "dumps"))
    )
    assert sum(together["log_odds"].values()) > sum(dumps["log_odds"].values())
    assert found["confidence"] == together["confidence"] >= dumps["confidence"]


def test_stacks_that_cannot_be_joined_say_what_is_missing(
    both: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (both / "ranks.json").unlink()
    _, found = explained(capsys, str(both))
    assert found["culprit_ranks"] == [2]
    assert found["culprits"][0]["named_by"] == ["flight-recorder"]
    joined, accused = found["contradictions"]
    assert "have no rank" in joined
    assert "ranks.json" in joined
    assert "pid 10263 on node1" in accused


def test_what_contradicts_the_answer_is_said(
    both: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table gives the sleeper's process to rank 0: stacks and recorders name others."""
    rows = [{"host": "node1", "pid": 10261 + rank, "rank": 2 - rank} for rank in range(3)]
    (both / "ranks.json").write_text(json.dumps(rows))
    _, found = explained(capsys, str(both))
    named = set(found["culprit_ranks"])
    assert named < {0, 2} or found["contradictions"]
    for witness in found["witnesses"]:
        missed = set(witness["ranks"]) - named
        said = any(line.startswith(witness["source"]) for line in found["contradictions"])
        assert bool(missed) == said


def test_answers_of_ras_and_logs_are_recognised_by_what_is_in_them(
    both: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(FIXTURES / "nccl_ras/straggler.txt", both / "poll_1.txt")
    (both / "train.log").write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    (both / "notes.bin").write_bytes(bytes(range(256)) * 8)
    _, found = explained(capsys, str(both))
    kinds = {Path(name).name: kind for name, kind in found["files"].items()}
    assert kinds["poll_1.txt"] == "nccl-ras"
    assert kinds["train.log"] == "logs"
    assert kinds["ranks.json"] == "ranks"
    assert kinds["trace_0.json"] == "flight-recorder"
    assert kinds["pyspy_node1_10261.txt"] == "stacks"
    assert {one["source"] for one in found["witnesses"]} == {
        "flight-recorder",
        "logs",
        "nccl-ras",
        "stacks",
    }


def test_a_cut_dump_is_named_with_its_file(both: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = both / "dumps/trace_3.json"
    dump.write_bytes(dump.read_bytes()[: dump.stat().st_size // 2])
    os.mkfifo(both / "pipe")
    _, found = explained(capsys, str(both))
    assert any("trace_3.json" in problem for problem in found["problems"])
    assert any("pipe: is not a regular file" in problem for problem in found["problems"])


def test_nothing_to_explain_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n")
    assert main(["explain", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "nothing in it can be explained" in said
    assert "picture.png: not recognised" in said
    assert main(["explain", str(tmp_path / "picture.png")]) == 2
    said = capsys.readouterr().err
    assert "is a file" in said
    assert "KIND is one of flight-recorder, nccl-ras, stacks, stragglers;" in said
    assert main(["explain", "flight-recoder"]) == 2
    assert "which are flight-recorder, folder, nccl-ras" in capsys.readouterr().err


def test_logs_of_a_job_that_is_well_find_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"step {step} loss 1.0" for step in range(1, 9)]
    (tmp_path / "train.log").write_text("\n".join([*lines, "Training completed.", ""]))
    code, found = explained(capsys, str(tmp_path))
    assert (code, found["culprits"], found["witnesses"][0]["source"]) == (0, [], "logs")


def test_an_answer_is_one_sentence_in_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.log").write_text("hello\n")
    assert main(["explain", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines()[0] == (
        "unknown-death: The logs end before any step was seen without giving a reason, "
        "confidence 40 %"
    )


def test_polls_without_stacks_count_no_rank_that_waits(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(FIXTURES / "nccl_ras")])
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("unknown: the job hangs: AllGather number 641 of communicator")
    assert "ranks wait in collectives" not in first


# The live engine and the folder are one judge.


def mismatch() -> RecorderFacts:
    """Two ranks, each of which waits for the other in a call that differs."""
    return RecorderFacts(
        kind="collective-mismatch",
        evidence=("mismatch in tp[0-1] number 21: rank 0 called 32 Float; rank 1 called 16 Float",),
        waits=tuple(
            RecorderWait(rank=rank, operation="all_reduce", waits_for=(1 - rank,))
            for rank in (0, 1)
        ),
        ranks=(0, 1),
    )


def test_calls_that_differ_are_told_where_nobody_is_named() -> None:
    verdict = judged(FolderEvidence(recorder=mismatch())).verdict
    assert verdict.culprits == ()
    assert verdict.kind == "collective-mismatch"
    assert verdict.summary == (
        "the job hangs: mismatch in tp[0-1] number 21: rank 0 called 32 Float; "
        "rank 1 called 16 Float"
    )
    assert verdict.next_steps
    assert verdict.waiting == ("ranks 0-1: for each other in all_reduce",)


@pytest.mark.parametrize("pending", [True, False])
def test_ranks_whose_recorder_shows_a_pending_call_do_not_wait_outside(pending: bool) -> None:
    stacks = [elsewhere(rank) for rank in (0, 1)]
    recorder = msgspec.structs.replace(mismatch(), kind="cannot-tell")
    if not pending:
        recorder = RecorderFacts(kind="waiting-outside", ranks=(0, 1))
    verdict = judged(FolderEvidence(rounds=[stacks], recorder=recorder)).verdict
    assert (verdict.kind == "stall") is not pending
    assert ("2 of 2 ranks wait in collectives" in verdict.summary) is pending


@pytest.mark.parametrize(("unknown", "outside"), [(3, False), (0, True)])
def test_places_of_which_it_is_not_known_whether_they_wait_are_not_outside(
    unknown: int, outside: bool
) -> None:
    stacks = [
        elsewhere(rank, "unknown" if rank < unknown else "sleep", f"place_{rank} (x.py:1)")
        for rank in range(4)
    ]
    verdict = judged(FolderEvidence(rounds=[stacks])).verdict
    assert ("wait for something outside" in verdict.summary) is outside


def test_the_answer_says_what_to_do_and_no_host_that_is_not_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["explain", str(FIXTURES / "flight_recorder" / "gloo_sleeper")])
    lines = capsys.readouterr().out.splitlines()
    assert " on " not in lines[0]
    assert "confidence 9" in lines[0]
    assert lines[0].endswith(" %")
    assert lines.index("What to do:") < lines.index("Witnesses:")
    assert lines[lines.index("What to do:") + 1].startswith("  1. ")


@pytest.mark.parametrize(
    ("kind", "folder"),
    [("flight-recorder", "flight_recorder/gloo_sleeper"), ("stacks", "stacks/gloo_plain/native")],
)
def test_each_explainer_says_what_to_do(
    kind: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", kind, str(FIXTURES / folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("What to do:") + 1].startswith("  1. ")


def test_polls_of_ras_say_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "nccl-ras", str(FIXTURES / "nccl_ras" / "dead.txt")]) == 1
    assert "  1. Check the log of this rank" in capsys.readouterr().out


def live(recorder: RecorderFacts | None) -> tuple[Incident, FolderEvidence]:
    """A job whose rank 4 stands still, as the engine told it, and the evidence that it got."""
    attached = recorder is not None  # else nobody asks for recorders
    sim = Sim(attached=attached)
    sim.recorder = recorder
    sim.run(60)
    sim.ranks[4].stuck = True
    sim.run(60)
    incident = next(one for one in sim.engine.incidents() if one.kind == "host-stuck")
    ranks = {rank.pid: rank.number for rank in sim.ranks}
    rounds = [
        [
            msgspec.structs.replace(fact, rank=sim_rank(incident, ranks[fact.process.pid]))
            for fact in event.facts
        ]
        for event in sim.log
        if isinstance(event, StacksTaken) and event.incident == incident.id and event.facts
    ]
    told = [event.facts for event in sim.log if isinstance(event, RecorderExplained)]
    record = incident if attached else None  # its steps are in no file
    recorder = told[-1] if told else None
    return incident, FolderEvidence(rounds=rounds, recorder=recorder, incident=record)


def sim_rank(incident: Incident, number: int) -> Any:
    return msgspec.structs.replace(incident.suspects[0], rank=number)


@pytest.mark.parametrize("with_recorder", [False, True])
def test_the_same_evidence_gives_the_same_answer_as_live(with_recorder: bool) -> None:
    recorder = RecorderFacts(
        kind="not-enqueued",
        culprits=(RecorderCulprit(rank=4, kind="not-enqueued", reason="has not enqueued it"),),
        waits=tuple(
            RecorderWait(rank=rank, operation="all_reduce", waits_for=(4,)) for rank in (0, 1)
        ),
        strength=0.9,
        ranks=(0, 1, 2, 3, 4, 5),
    )
    incident, evidence = live(recorder if with_recorder else None)
    assert (evidence.recorder is not None) == with_recorder
    assert len(evidence.rounds) > 1
    verdict = judged(evidence).verdict
    assert incident.verdict is not None
    assert verdict.kind == incident.kind
    assert [one.rank for one in verdict.culprits] == [4]
    assert [one.rank for one in incident.verdict.culprits] == [4]
    assert verdict.confidence == incident.verdict.confidence
    weighed = {(e.source, e.rank, e.weight) for e in incident.verdict.evidence if e.rank == 4}
    assert {(e.source, e.rank, e.weight) for e in verdict.evidence if e.rank == 4} == weighed


def test_what_only_the_record_tells_counts_as_it_was_recorded(tmp_path: Path) -> None:
    """A stopped rank is proven by its process's state, which no file of the folder has."""
    sim = Sim()
    sim.run(30)
    sim.ranks[2].stuck = True
    sim.ranks[2].state = "T"
    sim.run(20)
    (incident,) = sim.engine.incidents()
    (tmp_path / "incident.json").write_bytes(incident_json(incident))
    answer = answered(read_folder(str(tmp_path)))
    assert incident.verdict is not None
    assert answer.kind == incident.kind == "rank-stopped"
    assert [one["rank"] for one in answer.culprits] == [2]
    assert "process" in answer.culprits[0]["named_by"]


def test_stacks_that_are_not_in_the_folder_count_as_they_were_recorded(tmp_path: Path) -> None:
    incident, _ = live(None)
    (tmp_path / "incident.json").write_bytes(incident_json(incident))
    answer = answered(read_folder(str(tmp_path)))
    assert incident.verdict is not None
    assert [one["rank"] for one in answer.culprits] == [4]
    assert answer.confidence == incident.verdict.confidence
    assert answer.culprits[0]["named_by"] == ["stacks"]


def test_a_kept_gil_is_told_as_the_explainer_of_stacks_tells_it() -> None:
    look = [*(fact(r) for r in range(3)), elsewhere(3, "unknown", keeps_gil=True)]
    verdict = judged(FolderEvidence(rounds=[look, look])).verdict
    assert ([one.rank for one in verdict.culprits], verdict.kind) == ([3], "gil-held")


def test_who_waits_in_its_next_call_is_not_called_slow() -> None:
    later = [fact(r) for r in range(4)]
    gathers = (*REDUCE[:-1], "all_gather (torch/d.py:9)")
    verdict = judged(
        FolderEvidence(rounds=[[*later[:3], fact(3, signature=gathers)], later])
    ).verdict
    assert (verdict.culprits, verdict.kind) == ((), "unknown")
    assert "4 of 4 ranks wait in collectives" in verdict.summary

"""Reports of an incident: all that it knows is there, and nothing hostile gets through."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.actors.bundles.index import rendered
from ray_sentinel.model.diagnosis import CauseLocation as SeriesCulprit
from ray_sentinel.model.diagnosis import Diagnosis, Figure, Link
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import (
    ChainLink,
    Culprit,
    EvidenceItem,
    Incident,
    RankLog,
    Transition,
    Verdict,
)
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.report import series
from ray_sentinel.report.contract import incident_dict
from ray_sentinel.report.html import incident_html
from ray_sentinel.report.incident_markdown import markdown
from ray_sentinel.report.timeline import WIDTH, timeline
from tests.support import page_data
from tests.support.page_stacks import with_stacks


def test_the_contract_has_what_it_promises(incident: Incident) -> None:
    plain = incident_dict(incident)
    promised = "id job kind severity state culprits confidence last_progress suspected_at"
    promised += " confirmed_at resolved_at evidence bundle chain"
    assert set(promised.split()) <= plain.keys()
    assert plain["culprits"][0].keys() == {"rank", "host", "pid", "reason", "gpu"}
    assert 0 < plain["confidence"] <= 1


def test_incident_json_reads_back_as_the_incident(incident: Incident) -> None:
    data = rendered(incident)["incident.json"]
    assert msgspec.json.decode(data, type=Incident) == incident


def test_the_report_names_the_culprit_and_shows_both_stacks(incident: Incident) -> None:
    text = rendered(incident, ["pyspy_host2_1004.txt"])["report.md"].decode()
    assert "| rank 4 | host2 | 1004 |" in text
    assert "hold (somewhere.py:7)" in text
    assert "all_reduce (distributed_c10d.py:99)" in text
    assert "pyspy_host2_1004.txt" in text


def test_a_waiter_with_the_culprits_pid_on_another_host_is_a_waiter(incident: Incident) -> None:
    verdict = incident.verdict
    assert verdict is not None
    alike = tuple(
        msgspec.structs.replace(fact, process=msgspec.structs.replace(fact.process, pid=1004))
        for fact in verdict.stacks
    )
    told = msgspec.structs.replace(incident, verdict=msgspec.structs.replace(verdict, stacks=alike))
    files = {name: data.decode() for name, data in rendered(told).items()}
    assert len(alike) > 1
    assert files["report.md"].count("pid 1004 (culprit") == 1
    assert files["report.html"].count('<b class="bad">culprit</b>') == 1


@pytest.fixture
def of_actors() -> Incident:
    """A rollout that stands still; the driver waits for a trainer, and that for the rollout."""
    verdict = Verdict(
        kind="actor-stuck",
        summary="Rollout 2 stands still",
        culprits=(
            Culprit(
                rank=None,
                host="node2",
                pid=77,
                reason="sleeping in score (reward.py:88)",
                role="Rollout",
                actor="Rollout 2",
                method="Rollout.generate",
            ),
        ),
        confidence=0.9,
        chain=(
            ChainLink(
                start="driver",
                end="Trainer.update at Trainer 1",
                how="ray.get",
                since=1000.0,
                witness="py-spy",
            ),
            ChainLink(start="Trainer 1", end="all_reduce of Trainer", how="in", since=1001.0),
            ChainLink(start="all_reduce of Trainer", end="Trainer 0", how="has not come to it"),
            ChainLink(
                start="Trainer 0",
                end="Rollout.generate at Rollout 2",
                how="ray.get",
                since=1002.0,
            ),
        ),
        stacks=(
            StackFact(process=ProcessId("node2", 77, 1), signature=("score (reward.py:88)",)),
            StackFact(process=ProcessId("node1", 77, 1), signature=("update (train.py:3)",)),
        ),
    )
    return Incident(
        id="0007",
        job="train_rl-1",
        attempt=0,
        kind="actor-stuck",
        severity="critical",
        state="confirmed",
        summary=verdict.summary,
        rule="ray.waits",
        suspected_at=1030.0,
        confirmed_at=1041.0,
        verdict=verdict,
    )


def test_a_culprit_that_is_no_rank_has_its_role_and_the_chain_is_on_top(
    of_actors: Incident,
) -> None:
    plain = incident_dict(of_actors)
    (culprit,) = plain["culprits"]
    assert "rank" not in culprit
    assert (culprit["role"], culprit["actor"]) == ("Rollout", "Rollout 2")
    assert culprit["method"] == "Rollout.generate"
    assert plain["chain"][0] == {
        "from": "driver",
        "to": "Trainer.update at Trainer 1",
        "how": "ray.get",
        "since": 1000.0,
        "witness": "py-spy",
    }
    assert msgspec.json.decode(rendered(of_actors)["incident.json"], type=Incident) == of_actors


def test_the_reports_tell_who_waits_for_whom_step_by_step(of_actors: Incident) -> None:
    files = {name: data.decode() for name, data in rendered(of_actors).items()}
    steps = (
        "driver waits 41 s in ray.get for Trainer.update at Trainer 1",
        "Trainer 1 waits 40 s in all_reduce of Trainer",
        "Trainer 0 has not come to it",
        "Trainer 0 waits 39 s in ray.get for Rollout.generate at Rollout 2",
        "Rollout 2 (Rollout.generate): sleeping in score (reward.py:88)",
    )
    report = [line for line in files["report.md"].splitlines() if line[:1].isdigit()]
    assert report == [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    at = [files["report.html"].index(f"<li>{step}</li>") for step in steps]
    assert at == sorted(at)
    assert "| Rollout 2 (Rollout.generate) | node2 | 77 |" in files["report.md"]


def test_a_stack_of_no_rank_is_called_by_its_process(of_actors: Incident) -> None:
    text = rendered(of_actors)["report.md"].decode()
    assert "<summary>Stack of Rollout 2, pid 77 (culprit" in text
    assert "<summary>Stack of pid 77 on node1 (waiter" in text


def test_a_stack_that_was_taken_of_an_actor_is_that_of_the_rank_that_it_is(
    of_actors: Incident,
) -> None:
    assert of_actors.verdict is not None
    (culprit,) = of_actors.verdict.culprits
    culprits = (msgspec.structs.replace(culprit, rank=0),)
    verdict = msgspec.structs.replace(of_actors.verdict, culprits=culprits)
    told = msgspec.structs.replace(of_actors, verdict=verdict)
    assert "<summary>Stack of rank 0, pid 77 (culprit" in rendered(told)["report.md"].decode()


def test_a_chain_of_many_steps_and_hostile_names_stays_readable(of_actors: Incident) -> None:
    verdict = of_actors.verdict
    assert verdict is not None
    evil = "<b>\x1b[2J\n# owned |" + 100_000 * "x"
    link = ChainLink(start=evil, end=evil, how="ray.get", since=1000.0)
    chain = (link,) * 50
    told = msgspec.structs.replace(of_actors, verdict=msgspec.structs.replace(verdict, chain=chain))
    files = {name: data.decode() for name, data in rendered(told).items()}
    assert "… 26 steps more …" in files["report.md"]
    assert "\n# owned" not in files["report.md"]
    assert "<b>\x1b" not in files["report.html"]
    assert len(files["report.md"]) < 100_000
    assert len(files["report.html"]) < 200_000


def test_hostile_text_neither_escapes_the_page_nor_drives_a_terminal(incident: Incident) -> None:
    evil = "<script>alert(1)</script>\x1b[2J\n# owned | x"
    bad = msgspec.structs.replace(incident, summary=evil, job=evil)
    files = rendered(bad)
    assert b"<script>" not in files["report.html"]
    assert b"\x1b" not in files["report.md"]
    assert b"\n# owned" not in files["report.md"]


def test_what_shows_it_is_folded_for_an_issue_and_open_on_a_terminal(incident: Incident) -> None:
    folded, opened = markdown(incident), markdown(incident, folds=False)
    assert "<details><summary>Stack of rank 4, pid 1004 (culprit" in folded
    assert folded.count("<details>") == folded.count("\n\n</details>\n") > 3
    heads = [folded.index(f"## {head}") for head in ("Who waits", "Culprit", "What to do", "Why")]
    assert heads == sorted(heads)
    assert heads[-1] < folded.index("<details>")
    assert "<details>" not in opened
    assert "## Stack of rank 4, pid 1004 (culprit" in opened


@pytest.mark.parametrize("text", ["|", "\U0001f9e8", "`", '&<"', "<img src=x>|\n# owned\n"])
def test_whatever_texts_say_it_fits_an_issue_with_room(of_actors: Incident, text: str) -> None:
    """GitHub refuses an issue of more than 65,536 characters; JavaScript counts some twice."""
    evil = text * 2_000
    verdict = of_actors.verdict
    assert verdict is not None
    link = ChainLink(start=evil, end=evil, how="ray.get", since=1000.0)
    verdict = msgspec.structs.replace(
        verdict,
        chain=(link,) * 50,
        culprits=tuple(
            Culprit(rank=None, host=evil, pid=7, reason=f"{number}{evil}", actor=evil, method=evil)
            for number in range(200)
        ),
        evidence=tuple(
            EvidenceItem(source=evil, text=evil, weight=weight)
            for weight in (2.0, 0.0, -1.0)
            for _ in range(200)
        ),
        waiting=(evil,) * 200,
        next_steps=(evil,) * 200,
        stacks=tuple(
            StackFact(process=ProcessId(evil, pid, 1), signature=(evil,) * 50) for pid in range(40)
        ),
    )
    logs = tuple(
        RankLog(rank=None, label=evil, host=evil, pid=n, lines=(evil,) * 9) for n in range(40)
    )
    told = msgspec.structs.replace(
        of_actors, summary=evil, job=evil, verdict=verdict, logs=logs,
        history=(Transition(1030.0, "suspected", evil),) * 500,
    )  # fmt: skip
    report = markdown(told, (evil,) * 500)
    assert len(report.encode("utf-16-le")) // 2 <= 61_000
    assert "parts are left out here, `report.html` has all: " in report
    for heading in ("Culprits", "What to do", "Who waits for whom", "Why"):
        begun = report.index(f"\n## {heading}\n")
        assert report[begun + 4 + len(heading) :].lstrip()[:2] in ("| ", "- ", "1.")
    assert "more lines are left out here" in report
    assert report.count("<details>") == report.count("</details>")


def test_of_little_nothing_is_left_out(incident: Incident, of_actors: Incident) -> None:
    for one in (incident, of_actors, with_stacks(page_data.incident())):
        assert "left out" not in markdown(one)


def test_an_incident_without_a_verdict_still_has_a_report(incident: Incident) -> None:
    bare = msgspec.structs.replace(incident, verdict=None, last_progress=None)
    files = rendered(bare)
    assert b"unknown" in files["report.md"]
    assert incident_dict(bare)["culprits"] == []


def test_what_the_series_say_is_in_all_three_files(incident: Incident) -> None:
    diagnosis = Diagnosis(
        analysis="network-health",
        playbook="network-health",
        outcome="found",
        cause="rdma-link",
        root_cause="mlx5_3 of host2 retransmits <b>",
        confidence=0.9,
        culprits=(SeriesCulprit(host="host2", device="mlx5_3"),),
        chain=(Link(role="root", text="retransmits rise", at=1000.0),),
        evidence=(Figure(text="12,000 packets a second"),),
    )
    files = rendered(incident, (), diagnosis)
    kept = msgspec.json.decode(files["incident.json"])["diagnosis"]
    assert kept["culprits"][0]["device"] == "mlx5_3"
    assert kept["cause"] == "rdma-link"
    for name in ("report.md", "report.html"):
        text = files[name].decode()
        assert "What the time series say" in text
        assert "12,000 packets a second" in text
        assert "00:16:40.0 UTC: root: retransmits rise" in text
    assert b"&lt;b&gt;" in files["report.html"]


def test_what_ranks_wrote_last_is_quoted_and_linked(incident: Incident) -> None:
    quoted = RankLog(
        rank=4,
        host="host2",
        pid=1004,
        file="logs/rank-4.log",
        sources=("stderr: /logs/4.err",),
        ended=True,
        lines=("<b>step</b>", "```", "ValueError: no such batch"),
    )
    absent = RankLog(rank=1, host="host0", pid=1001, missing="stdout and stderr is a pipe")
    odd = RankLog(rank=2, host="host1", pid=1002, file="javascript:alert(1)")
    told = msgspec.structs.replace(incident, logs=(quoted, absent, odd))
    files = {name: data.decode() for name, data in rendered(told).items()}
    page, text = files["report.html"], files["report.md"]
    assert "Last lines of rank 4 on host2" in text
    assert "````\n<b>step</b>\n```\nValueError: no such batch\n````" in text
    assert "[`logs/rank-4.log`](<logs/rank-4.log>) (stderr: /logs/4.err)" in text
    assert "- rank 1 on host0 (pid 1001): stdout and stderr is a pipe" in text
    assert "](<javascript" not in text
    assert '<a href="logs/rank-4.log">' in page
    assert 'href="javascript' not in page
    assert "&lt;b&gt;step" in page
    assert msgspec.json.decode(files["incident.json"])["logs"][0]["file"] == "logs/rank-4.log"


def test_the_timeline_tells_each_step_with_its_time(incident: Incident) -> None:
    for text in (rendered(incident)[name].decode() for name in ("report.md", "report.html")):
        _, _, steps = text.partition("Timeline")
        marks = (
            "rank 4, step",
            "of the job: its silence begins",
            "case opened",
            "round 1 of 6 ranks: 5 ",
            "round 2 of 6 ranks: 5 ",
            "decided",
            "captured",
        )
        places = [steps.index(mark) for mark in marks]
        assert places[2:] == sorted(places[2:]), steps
        assert max(places[:2]) < places[2], steps
        assert "-1" in steps, "offsets are from the moment of the suspicion"


def test_series_that_explain_nothing_are_said_to(incident: Incident) -> None:
    diagnosis = Diagnosis(
        analysis="health-check",
        playbook="all",
        outcome="healthy",
        cause="none",
        root_cause="Healthy: no playbook found a fault.",
        confidence=0.7,
    )
    assert b"They explain nothing here" in rendered(incident, (), diagnosis)["report.md"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"analysis": 3}'])
def test_a_damaged_diagnosis_is_left_out(data: bytes) -> None:
    assert series.read({series.FILE: data}) is None
    assert series.read({}) is None


def test_a_reason_that_several_nodes_give_is_told_once_and_in_a_line(incident: Incident) -> None:
    why = "; ".join(["cuda-gdb is not on this node"] * 3)
    step = Transition(incident.suspected_at + 9.0, "captured", f"{why}; {'a b ' * 100}")
    told = timeline(msgspec.structs.replace(incident, history=(step,)))[-1].text
    assert told.count("cuda-gdb") == 1
    assert len(told) <= WIDTH
    assert told.endswith("...")


def test_what_is_over_without_any_progress_has_no_time_after_it(incident: Incident) -> None:
    over = msgspec.structs.replace(incident, last_progress=None, resolved_at=2000.0)
    assert "<small> later</small>" not in incident_html(over)


def test_a_stack_is_said_to_be_of_all_who_stand_there() -> None:
    assert "Stack of ranks 0-2, 4-6 (waiter" in markdown(with_stacks(page_data.incident()))

"""From the incidents of a trial to its line, and from lines to the table."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ray_sentinel.demo.actor_plan import draw_actors
from ray_sentinel.demo.actor_suite import actor_result_of
from ray_sentinel.demo.actor_trial import ActorTrialOutcome
from ray_sentinel.demo.catalogue import ALL
from ray_sentinel.demo.plan import TrialPlan, draw
from ray_sentinel.demo.suite import plans, result_of
from ray_sentinel.demo.table import main, markdown, missed
from ray_sentinel.demo.trial import TrialOutcome, conclude
from ray_sentinel.model.incident import Culprit, EvidenceItem, FaultKind, Incident, Verdict
from ray_sentinel.report.contract import incident_dict
from tests.support.incidents import an_incident

BEGAN = 1_000.0


def incident(named: list[int], kind: FaultKind, at: float) -> Incident:
    culprits = tuple(Culprit(rank=rank, host="h", pid=rank, reason="") for rank in named)
    return an_incident(
        job="job",
        kind=kind,
        suspected_at=at,
        confirmed_at=at,
        verdict=Verdict(kind=kind, summary="", culprits=culprits),
    )


def weighed(one: Incident) -> Incident:
    """The same, with what was weighed of its first culprit."""
    assert one.verdict is not None
    rank = one.verdict.culprits[0].rank
    items = (
        EvidenceItem(source="stacks", text="", rank=rank, weight=3.0, proof=("elsewhere",)),
        EvidenceItem(source="exit", text="is behind", rank=rank, weight=3.0),
        EvidenceItem(source="stacks", text="waits", rank=0, weight=-2.0, proof=("waits",)),
    )
    verdict = msgspec.structs.replace(one.verdict, confidence=0.9, evidence=items)
    return msgspec.structs.replace(one, verdict=verdict)


def outcome(plan: TrialPlan, *incidents: Incident) -> TrialOutcome:
    return conclude(plan, list(incidents), BEGAN)


def test_the_right_name_in_time() -> None:
    plan = draw("sleep", rank=3, seed=1)
    told = result_of(outcome(plan, incident([3], "host-stuck", BEGAN + 13)))
    assert (told.exact, told.right_kind, told.in_time, told.innocents) == (True, True, True, [])
    assert told.wrong == ""
    assert missed([told]) == ""
    assert "| `sleep` | 1 | 1 | 1 | 1 | 1 | 13.0, 13.0 | 0, 0 |" in markdown([told])


def test_who_testified_is_kept() -> None:
    plan = draw("sleep", rank=3, seed=1)
    told = result_of(outcome(plan, weighed(incident([3], "host-stuck", BEGAN + 13))))
    assert told.confidence == 0.9
    assert told.witnesses == {"stacks: elsewhere": 3.0, "exit": 3.0}


def test_what_a_command_printed_says_who_testified() -> None:
    printed = msgspec.json.decode(
        msgspec.json.encode(incident_dict(weighed(incident([3], "host-stuck", BEGAN + 13))))
    )
    drawn = draw_actors("sleep", 1)
    read = msgspec.convert(printed, Incident)
    told = actor_result_of(ActorTrialOutcome(plan=drawn, incidents=(read,), began=BEGAN))
    assert told.confidence == 0.9
    assert told.witnesses == {"stacks: elsewhere": 3.0, "exit": 3.0}


def test_an_innocent_beside_the_culprit_is_seen() -> None:
    plan = draw("sleep", rank=3, seed=1)
    told = result_of(outcome(plan, incident([2, 3], "cpu-spin", BEGAN + 20)))
    assert (told.exact, told.right_kind, told.in_time) == (False, False, False)
    assert told.innocents == [2]
    assert "| 0 of 1 | 0 of 1 | 20.0, 20.0 | 1, 0 |" in markdown([told])


def test_a_second_incident_and_an_early_one_are_wrong() -> None:
    plan = draw("sleep", rank=3, seed=1)
    early = incident([3], "host-stuck", BEGAN - 5)
    later = incident([3], "host-stuck", BEGAN + 12)
    told = result_of(outcome(plan, early, later))
    assert told.wrong == "2 incidents instead of one: host-stuck: s; host-stuck: s"
    assert told.false_alarms == 1


def test_any_incident_of_a_healthy_job_is_a_false_alarm() -> None:
    plan = draw("evaluate", seed=1)
    assert result_of(outcome(plan)).false_alarms == 0
    told = result_of(outcome(plan, incident([], "stall", BEGAN + 50)))
    assert told.false_alarms == 1
    assert told.wrong.startswith("a false alarm")


def test_nobody_is_the_right_answer_where_all_wait_outside() -> None:
    plan = draw("outside", seed=1)
    told = result_of(outcome(plan, incident([], "stall", BEGAN + 46)))
    assert (told.exact, told.right_kind, told.wrong) == (True, True, "")
    assert result_of(outcome(plan)).wrong == "0 incidents instead of one"


def test_broken_trials_count_for_nothing() -> None:
    plan = draw("sleep", seed=1)
    told = result_of(TrialOutcome(plan=plan, broken="no port"))
    assert "1 trials did not come to their trouble" in markdown([told])
    assert "`sleep` | " not in markdown([told])


def test_a_sweep_takes_every_fault_once_a_round_and_all_modes_in_turn() -> None:
    drawn = plans(ALL, 10)
    taken = [next(drawn) for _ in range(3 * len(ALL))]
    assert [plan.fault for plan in taken] == 3 * list(ALL)
    assert [plan.seed for plan in taken] == list(range(10, 10 + len(taken)))
    for fault in ALL:
        modes = {plan.attach for plan in taken if plan.fault == fault}
        assert modes == {"", "attach", "step"}, fault
    assert next(plans(ALL, 11)).attach != taken[0].attach, "one round of another draw differs"


def test_jobs_of_actors_have_a_table_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = draw_actors("circle", 4)
    wrong = ActorTrialOutcome(plan=plan, seconds=None, wrong="0 incidents instead of one")
    idle = ActorTrialOutcome(plan=draw_actors("idle", 5))
    results = tmp_path / "results.jsonl"
    lines = [msgspec.json.encode(actor_result_of(one)) for one in (wrong, idle)]
    results.write_bytes(b"\n".join(lines))
    assert main([str(results)]) == 0
    told = capsys.readouterr().out
    assert "| `circle` | 1 | 0 of 1 | 0 of 1 | 0 of 1 | 0 of 1 |  | 0, 0 |" in told
    assert "| `idle` | 1 | | | | | | 0, 0 |" in told
    assert "| **waits (limit 20 s)** | 1 |" in told
    members = sorted(plan.accused[0])
    assert (
        f"- `circle`, chain, nobody, attach: no, seed 4: 0 incidents instead of one "
        f"(expected [{members}])"
    ) in told

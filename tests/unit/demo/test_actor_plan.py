"""The jobs of actors of the fault suite: what is drawn, what is expected, how it is judged."""

from __future__ import annotations

import ast
import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ray_sentinel.demo.actor_catalogue import ACTOR_ALL, ACTOR_FAULTS, ACTOR_HEALTHY, ROLES
from ray_sentinel.demo.actor_plan import draw_actors
from ray_sentinel.demo.actor_suite import (
    ActorTrialResult,
    actor_plans,
    actor_result_of,
    needs_client,
    needs_dashboard,
)
from ray_sentinel.demo.actor_trial import ActorTrialOutcome, accused, judge_actors
from ray_sentinel.demo.program import write_actor_scripts
from ray_sentinel.errors import UsageError
from ray_sentinel.model.incident import Culprit, FaultKind, Incident, Verdict
from tests.support.incidents import an_incident


@pytest.mark.parametrize("fault", sorted(ACTOR_ALL))
def test_a_plan_is_the_same_for_the_same_seed_and_fits_its_row(fault: str) -> None:
    for seed in range(20):
        plan = draw_actors(fault, seed)
        assert plan == draw_actors(fault, seed)
        assert plan.layout in plan.expected.layouts
        assert set(plan.sizes) == set(ROLES[plan.layout])
        members = {f"{role}-{n}" for role, size in plan.sizes.items() for n in range(size)}
        known = members | {"driver-0", "holder-0", "newcomer-0", ""}
        assert plan.culprit in known
        assert all(one <= known for one in plan.accused)
        assert bool(plan.kinds) == (fault in ACTOR_FAULTS)
        assert (plan.limit is None) == (plan.clock in ("healthy", "slow"))


def test_a_rank_is_judged_as_one() -> None:
    plans = [draw_actors("sigstop", seed, layout="rl-sync") for seed in range(40)]
    trainer = next(plan for plan in plans if plan.culprit.startswith("trainer"))
    rollout = next(plan for plan in plans if plan.culprit.startswith("rollout"))
    assert (trainer.kinds, trainer.limit) == (("rank-stopped",), 5.0)
    assert (rollout.kinds, rollout.limit) == (("actor-stuck", "rank-stopped"), 20.0)


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no fault circel; did you mean circle\? ") as refused:
        draw_actors("circel")
    assert str(refused.value).endswith(", ".join(ACTOR_HEALTHY))
    with pytest.raises(UsageError, match="circle has the layouts chain, not serve"):
        draw_actors("circle", layout="serve")
    with pytest.raises(UsageError, match="neither a fault nor a layout: nope"):
        next(actor_plans(1, ["nope"]))
    with pytest.raises(UsageError, match="no fault has all of these: circle, serve"):
        next(actor_plans(1, ["circle", "serve"]))


def test_the_suite_plays_what_it_was_told_to() -> None:
    whole = [plan.fault for plan in islice(actor_plans(7), len(ACTOR_ALL))]
    assert whole == list(ACTOR_ALL)
    assert {plan.layout for plan in islice(actor_plans(7, ["pool"]), 30)} == {"pool"}
    some = list(islice(actor_plans(7, ["sleep", "gil", "tasks", "nested"]), 4))
    assert sorted((plan.fault, plan.layout) for plan in some) == [
        ("gil", "nested"), ("gil", "tasks"), ("sleep", "nested"), ("sleep", "tasks"),
    ]  # fmt: skip
    assert needs_client([draw_actors("client", 1)])
    assert needs_dashboard([draw_actors("job-stop", 1)])
    assert not needs_client(some)
    assert not needs_dashboard(some)


@pytest.mark.parametrize("attach", ["", "attach", "step"])
def test_a_program_is_python_without_any_of_our_names(attach: Any, tmp_path: Path) -> None:
    plan = draw_actors("sleep", 5, layout="rl-sync", attach=attach)
    words = write_actor_scripts(tmp_path, plan)
    told = json.loads((tmp_path / "plan.json").read_text())
    texts = {name: (tmp_path / file).read_text() for name, file in told["scripts"].items()}
    for text in texts.values():
        ast.parse(text)
        assert not re.search(r"\bx_", text)
    assert ("ray_sentinel.attach(job" in texts["x_report"]) == bool(attach)
    assert "ray_sentinel" not in "".join(texts[name] for name in texts if name != "x_report")
    assert told["program"] + ".py" == told["scripts"]["x_main"]
    assert f"class {words['x_Rollout']}(" in texts["x_learning"]


def told_as(kind: FaultKind, *pids: int) -> Incident:
    culprits = tuple(Culprit(rank=None, host="n", pid=pid, reason="") for pid in pids)
    verdict = Verdict(kind=kind, summary="so it is", culprits=culprits)
    return an_incident(kind=kind, summary="so it is", verdict=verdict, confirmed_at=112.0)


MEMBERS = {1: "link-0", 2: "link-1", 3: "driver-0"}


@pytest.mark.parametrize(
    ("incidents", "wrong"),
    [
        ([told_as("call-deadlock", 1, 2)], ""),
        ([], "0 incidents instead of one"),
        ([told_as("call-deadlock", 1)], "it names ['link-0']"),
        ([told_as("call-deadlock", 1, 2, 3)], "it names ['driver-0', 'link-0', 'link-1']"),
        ([told_as("call-deadlock", 1, 9)], "it names ['link-0', 'pid 9 on n']"),
        ([told_as("actor-stuck", 1, 2)], "it says actor-stuck"),
        ([told_as("call-deadlock", 1), told_as("pending")],
         "2 incidents instead of one: call-deadlock: so it is; pending: so it is"),
    ],
)  # fmt: skip
def test_a_verdict_is_held_against_what_was_drawn(incidents: list[Incident], wrong: str) -> None:
    plan = msgspec.structs.replace(draw_actors("circle", 1), sizes={"link": 2})
    assert judge_actors(plan, incidents, accused(incidents, MEMBERS)) == wrong


def test_nothing_need_be_told_of_a_slow_member_and_nothing_may_be_of_a_healthy_job() -> None:
    slow, healthy = draw_actors("slow", 1), draw_actors("idle", 1)
    assert judge_actors(slow, [], []) == ""
    assert judge_actors(slow, [told_as("slow", 1)], [slow.culprit]) == ""
    assert judge_actors(slow, [told_as("slow", 1)], ["driver-0"]) == "it names ['driver-0']"
    assert judge_actors(healthy, [], []) == ""
    assert judge_actors(healthy, [told_as("slow")], []) == "a false alarm: slow: so it is"


def test_a_result_says_what_a_trial_came_to() -> None:
    plan = msgspec.structs.replace(draw_actors("circle", 1), sizes={"link": 2})
    outcome = ActorTrialOutcome(
        plan=plan,
        incidents=(told_as("call-deadlock", 1, 3),),
        named=("driver-0", "link-0"),
        began=100.0,
        seconds=12.0,
        wrong="it names others",
    )
    result = actor_result_of(outcome)
    assert (result.in_time, result.exact, result.right_kind) == (True, False, True)
    assert (result.innocents, result.false_alarms) == (["driver-0"], 0)
    late = actor_result_of(msgspec.structs.replace(outcome, seconds=21.0))
    assert not late.in_time
    early = actor_result_of(msgspec.structs.replace(outcome, began=113.0))
    assert early.false_alarms == 1
    read = msgspec.json.decode(msgspec.json.encode(result), type=ActorTrialResult)
    assert read == result

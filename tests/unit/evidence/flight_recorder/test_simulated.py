"""Simulated jobs in all layouts, with all faults, in all formats: exact or "cannot tell".

The one thing that must never happen is that an innocent rank is named.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest

from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.waitgraph.recorder import explain
from tests.support.recorder_sim.dumps import FORMATS, NCCL, encode, tree, write
from tests.support.recorder_sim.faults import FAULTS, Case, simulate
from tests.support.recorder_sim.machine import Machine
from tests.support.recorder_sim.program import LAYOUTS

SEEDS = range(2)
RECORDED = [name for name in FORMATS if name != "gloo"]


@cache
def stopped_between(layout: str, seed: int) -> tuple[Case, dict[int, bytes]]:
    """The one whose dumps are damaged in many ways, and these dumps, whole."""
    case = simulate(layout, "stop between", seed)
    return case, write(case.machine, NCCL)


def named(facts: RecorderFacts) -> set[int]:
    return {culprit.rank for culprit in facts.culprits}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_innocent_is_named(layout: str, fault: str) -> None:
    for seed in SEEDS:
        case = simulate(layout, fault, seed)
        for style in random.Random(f"{layout}{fault}{seed}").sample(RECORDED, 3):
            facts = explain(write(case.machine, FORMATS[style]))
            assert named(facts) <= case.culprits, (style, facts.evidence)
            waiting = {wait.rank for wait in facts.waits}
            assert not waiting & named(facts)


@pytest.mark.parametrize("seed", [0, 5])
def test_a_cut_dump_of_one_that_waits_in_a_transfer_does_not_accuse_it(seed: int) -> None:
    """Only the counters of its group are left. The group is for collectives and transfers, so
    equal numbers, as with seed 5, do not say that nothing is pending."""
    case = simulate("pp4world", "stop before", seed)
    whole = write(case.machine, NCCL)
    assert 1 not in case.culprits
    facts = explain(whole | {1: whole[1][: len(whole[1]) * 7 // 10]}, world_size=4)
    assert named(facts) == case.culprits


STOPS = ("stop before", "stop between", "stop inside")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_stopped_host_is_named_exactly(layout: str) -> None:
    for fault in STOPS:
        for seed in range(4):
            case = simulate(layout, fault, seed)
            facts = explain(write(case.machine, NCCL))
            assert named(facts) == case.culprits, (fault, seed)
            assert facts.kind == "not-enqueued"
            waits = {wait.rank for wait in facts.waits}
            blocked = {r for r, ops in enumerate(case.machine.pending) if ops} - case.culprits
            assert blocked <= waits, "every innocent's wait is told"


@pytest.mark.parametrize(
    ("fault", "least"),
    [
        ("device unnoticed", 0.75),
        ("stop and device", 0.75),
        ("two stops", 0.6),
        ("two near", 0.4),
        ("two devices", 0.65),
        ("wrong op", 0.75),
        ("wrong size", 0.75),
        ("wrong dtype", 0.75),
        ("left out", 0.45),
        ("too many", 0.4),
        ("other order", 0.3),
    ],
)
def test_most_of_what_can_be_told_is_told(fault: str, least: float) -> None:
    exact = total = 0
    for layout in LAYOUTS:
        for seed in range(3):
            case = simulate(layout, fault, seed)
            if case.hangs and case.culprits:
                total += 1
                exact += named(explain(write(case.machine, NCCL))) == case.culprits
    assert exact >= least * total, f"{exact} of {total}"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nobody_is_named_where_all_wait_outside_or_all_is_well(layout: str) -> None:
    for fault in ("outside", "none"):
        case = simulate(layout, fault, 0)
        for style in RECORDED:
            facts = explain(write(case.machine, FORMATS[style]))
            assert facts.culprits == ()
            assert facts.kind in ("waiting-outside", "cannot-tell")


@pytest.mark.parametrize("layout", ["dp8", "tp2dp4", "ep4dp2", "fsdp4tp2"])
def test_gloo_dumps_without_members_lists(layout: str) -> None:
    for seed in range(3):
        case = simulate(layout, "stop between", seed)
        facts = explain(write(case.machine, FORMATS["gloo"]))
        assert named(facts) <= case.culprits


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dumps_of_different_moments_show_a_running_job(layout: str) -> None:
    machine = Machine(LAYOUTS[layout](), [], 5)
    machine.run(events=15)
    dumps = {}
    for rank in random.Random(3).sample(range(machine.job.world), machine.job.world):
        machine.run(events=30)
        dumps[rank] = encode(tree(machine, rank, NCCL), NCCL)
    facts = explain(dumps)
    assert facts.kind in ("running", "waiting-outside", "cannot-tell")
    assert facts.culprits == ()


def damaged(dumps: dict[int, bytes], rank: int, how: str) -> dict[int, bytes]:
    result = dict(dumps)
    if how == "missing":
        del result[rank]
    elif how == "empty":
        result[rank] = b""
    elif how == "blank":
        blank = {"version": "2.9", "pg_config": {}, "pg_status": {}, "entries": []}
        result[rank] = encode(blank, NCCL)
    else:
        data = dumps[rank]
        result[rank] = data[: random.Random(len(data)).randrange(len(data) // 3, len(data))]
    return result


@pytest.mark.parametrize("how", ["missing", "empty", "blank", "cut"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_dump_of_an_innocent_accuses_no_other(layout: str, how: str) -> None:
    for seed in range(3):
        case, whole = stopped_between(layout, seed)
        innocent = next(r for r in range(case.machine.job.world) if r not in case.culprits)
        dumps = damaged(whole, innocent, how)
        facts = explain(dumps, world_size=case.machine.job.world)
        assert named(facts) <= case.culprits | {innocent}
        if how in ("empty", "cut"):
            assert facts.problems


@pytest.mark.parametrize("how", ["missing", "empty", "blank", "cut"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_dump_of_the_culprit_accuses_no_innocent(layout: str, how: str) -> None:
    found = Counter[bool]()
    for seed in range(4):
        case, whole = stopped_between(layout, seed)
        (culprit,) = case.culprits
        dumps = damaged(whole, culprit, how)
        got = named(explain(dumps, world_size=case.machine.job.world))
        assert got <= case.culprits
        found[bool(got)] += 1
    if how != "cut":
        assert found[True] >= 3

"""Jobs drawn at random by a second generator, which shares nothing with the first: no innocents."""

from __future__ import annotations

import random

import pytest

from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.waitgraph.recorder import explain
from tests.support.recorder_fleet.cases import FAULTS, make
from tests.support.recorder_fleet.clock import Clockwork, Fault
from tests.support.recorder_fleet.shape import Axes, Shape, Todo, build
from tests.support.recorder_fleet.write import HANDS, Hand, dumps, encode, one


def named(facts: RecorderFacts) -> set[int]:
    return {culprit.rank for culprit in facts.culprits}


@pytest.mark.parametrize("hand", HANDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_no_innocent_is_named(fault: str, hand: str) -> None:
    case = make(fault, list(HANDS).index(hand))
    facts = explain(dumps(case.job, HANDS[hand]))
    assert named(facts) <= case.culprits, (case.job.shape.title, facts.evidence)
    assert facts.problems == ()


@pytest.mark.parametrize("hand", ["2.1", "2.2", "2.4", "2.8", "2.10", "2.11", "hccl", "xccl"])
def test_a_stopped_host_and_a_device_unseen_are_named_exactly(hand: str) -> None:
    for fault in ("host", "unseen"):
        for seed in range(8):
            case = make(fault, seed)
            assert named(explain(dumps(case.job, HANDS[hand]))) == case.culprits, (fault, seed)


def test_two_stopped_hosts_are_mostly_both_named() -> None:
    for fault, least in (("hosts far", 14), ("hosts near", 10), ("unseen both", 16)):
        cases = [make(fault, seed) for seed in range(20)]
        exact = sum(named(explain(dumps(c.job, HANDS["2.4"]))) == c.culprits for c in cases)
        assert exact >= least, (fault, exact)


def test_timing_shows_the_device_that_has_not_begun() -> None:
    cases = [make("device", seed) for seed in range(12)]
    for case in cases:
        facts = explain(dumps(case.job, HANDS["2.5"]))
        assert named(facts) <= case.culprits
        assert not facts.culprits or facts.kind == "device-stuck"
    exact = [named(explain(dumps(c.job, HANDS["2.5"]))) == c.culprits for c in cases]
    assert sum(exact) >= 6


@pytest.mark.parametrize("seed", range(6))
def test_a_slow_rank_that_goes_on_is_not_named(seed: int) -> None:
    """Clocks and dumps are apart, and the second look shows that the slow one moves."""
    axes = Axes(tp=2, dp=4, overlap=bool(seed % 2))
    job = Clockwork(build(axes), [Fault(3, "slow", 20 + seed)], seed)
    assert not job.hangs
    middle = job.made[3][24 + seed].issued + 1.0
    before = dumps(job, HANDS["2.9"], at=middle)
    later = dumps(job, HANDS["2.9"], at=middle + 45.0)
    facts = explain(later, earlier=before)
    assert facts.kind == "running"
    assert facts.culprits == ()


@pytest.mark.parametrize("fault", ["host", "hosts far", "left out"])
def test_an_innocent_whose_dump_is_missing_or_damaged_is_not_named(fault: str) -> None:
    rng = random.Random(fault)
    for seed in range(10):
        case = make(fault, seed)
        whole = dumps(case.job, HANDS["2.4"])
        innocent = rng.choice([rank for rank in whole if rank not in case.culprits])
        for damaged in (
            None,
            b"",
            whole[innocent][: len(whole[innocent]) // 2],
            b"\x80\x02garbage",
        ):
            given = {r: data for r, data in whole.items() if r != innocent}
            if damaged is not None:
                given[innocent] = damaged
            facts = explain(given, world_size=case.job.shape.world)
            assert named(facts) <= case.culprits, (seed, facts.evidence)


def test_entries_of_every_rank_at_another_version() -> None:
    """A job whose nodes have different versions of PyTorch."""
    case = make("host", 3)
    hands = [HANDS[name] for name in ("2.1", "2.4", "2.8", "2.10")]
    given = {
        rank: encode(one(case.job, rank, hands[rank % 4], case.job.last + 1), hands[rank % 4])
        for rank in range(case.job.shape.world)
    }
    assert named(explain(given)) == case.culprits


def test_versions_before_two_name_nobody_where_transfers_are_hidden() -> None:
    for seed in range(6):
        facts = explain(dumps(make("host", seed).job, Hand("1.0", one_seq=True, bare_group=True)))
        assert facts.culprits == () or len({c.rank for c in facts.culprits}) == 1


@pytest.mark.parametrize(("fault", "least"), [("op", 15), ("size", 15), ("dtype", 15)])
def test_a_wrong_call_in_a_group_of_two_is_voted_on_by_like_groups(fault: str, least: int) -> None:
    cases = [make(fault, seed) for seed in range(18)]
    exact = [named(explain(dumps(c.job, HANDS["2.2"]))) == c.culprits for c in cases]
    assert sum(exact) >= least


def test_one_that_calls_once_too_often_does_not_accuse_the_idle_majority() -> None:
    """Ranks 0 and 1 are done; rank 2 waits for all in a call of its own, rank 3 for rank 2."""
    shape = Shape("halves", 4)
    shape.groups = {"world": ("default_pg", (0, 1, 2, 3)), "low": ("half", (0, 1))}
    shape.groups["high"] = ("half", (2, 3))
    whole, low, high = (Todo(key, "all_reduce", "main", 8, blocks=True) for key in shape.groups)
    shape.todo = [[whole, low], [whole, low], [whole, whole, high], [whole, high]]
    for hand in ("2.2", "2.9", "2.10"):
        facts = explain(dumps(Clockwork(shape, [], 1), HANDS[hand]))
        assert named(facts) <= {2}, facts.evidence

"""Stacks side by side: equal ones share a column, what all share is told once."""

from __future__ import annotations

from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.incident import Culprit, Verdict
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.report.html import incident_html
from ray_sentinel.report.merged_stacks import MOST_COLUMNS, MergedStacks, merged_stacks
from ray_sentinel.report.stacks import MOST_FRAMES
from tests.support.incidents import an_incident

CULPRIT = Culprit(rank=4, host="n", pid=104, reason="r")


def fact(rank: int, *signature: str) -> StackFact:
    return StackFact(
        process=ProcessId("n", 100 + rank, 1), rank=RankId("j", 0, rank), signature=signature
    )


def verdict(*facts: StackFact) -> Verdict:
    return Verdict(kind="host-stuck", summary="s", culprits=(CULPRIT,), stacks=facts)


def merged(*facts: StackFact) -> MergedStacks:
    found = merged_stacks(verdict(*facts))
    assert found is not None
    return found


OUTER = ("<module> (a.py:1)", "train (a.py:7)")


def test_the_outer_calls_that_all_share_are_told_once() -> None:
    waits = (*OUTER, "step (a.py:9)", "all_reduce (torch/c10d.py:3)")
    found = merged(fact(4, *OUTER, "load (b.py:2)"), fact(0, *waits), fact(1, *waits))
    assert [frame.function for frame in found.common] == ["train", "<module>"]
    culprit, waiters = found.columns
    assert culprit.culprit
    assert [(frame.function, frame.place) for frame in culprit.own] == [("load", "b.py:2")]
    assert waiters.names == ("rank 0, pid 100", "rank 1, pid 101")
    assert [frame.function for frame in waiters.own] == ["all_reduce", "step"]


def test_one_place_alone_shares_nothing_with_nobody() -> None:
    found = merged(fact(4, *OUTER))
    assert found.common == ()
    assert len(found.columns[0].own) == 2


def test_a_stack_within_another_is_the_same_as_far_as_it_goes() -> None:
    found = merged(fact(4, *OUTER), fact(0, *OUTER, "step (a.py:9)"))
    assert found.columns[0].own == ()
    assert len(found.common) == 2
    assert merged_stacks(verdict()) is None


def test_stacks_without_frames_and_of_hundreds_of_calls() -> None:
    deep = tuple(f"call{number} (x.py:{number})" for number in range(500))
    found = merged(fact(4), fact(0, *deep))
    assert found.columns[0].own == ()
    assert found.columns[1].own[0].function == "call499"
    assert len(found.columns[1].own) == MOST_FRAMES
    assert found.columns[1].left_out == 500 - MOST_FRAMES
    same = merged(fact(4, *deep, "a (a.py:1)"), fact(0, *deep, "b (b.py:1)"))
    assert len(same.common) == MOST_FRAMES
    assert same.common_left_out == 500 - MOST_FRAMES


def test_many_places_and_endless_hostile_names_stay_a_page() -> None:
    long = "<script>f</script>" * 600
    facts = [fact(rank, *(f"{long}{rank} ({long}:{n})" for n in range(500))) for rank in range(64)]
    found = merged(*facts)
    assert len(found.columns) == MOST_COLUMNS
    assert found.more == 64 - MOST_COLUMNS
    page = incident_html(an_incident(verdict=verdict(*facts)))
    assert len(page) < 300_000
    assert "<script" not in page

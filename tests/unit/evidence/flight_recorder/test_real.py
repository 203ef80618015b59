"""Dumps that real torch jobs left."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.waitgraph.recorder import explain

FIXTURES = Path(__file__).parents[3] / "fixtures" / "flight_recorder"


def facts(scenario: str, *without: int, size: int = 4) -> RecorderFacts:
    folder = FIXTURES / scenario
    return explain(
        {r: (folder / f"trace_{r}.json").read_bytes() for r in range(size) if r not in without},
        world_size=size,
    )


@pytest.mark.parametrize(
    ("scenario", "culprits", "kind"),
    [
        ("gloo_sleeper", {2}, "not-enqueued"),
        ("gloo_left_out", {3}, "collective-mismatch"),
        ("gloo_mismatch", {1}, "collective-mismatch"),
        ("gloo_two_groups", {0}, "not-enqueued"),
        ("gloo_pipeline", set(), "cannot-tell"),
        ("gloo_outside", set(), "waiting-outside"),
    ],
)
def test_scenario(scenario: str, culprits: set[int], kind: str) -> None:
    found = facts(scenario)
    assert {culprit.rank for culprit in found.culprits} == culprits
    assert found.kind == kind
    assert found.problems == ()


def test_a_wrong_call_counts_though_many_seem_to_stand() -> None:
    """Those that wait in transfers look idle: they acquit nobody, and are not accused."""
    found = facts("gloo_stage_skips", size=8)
    assert [(culprit.rank, culprit.kind) for culprit in found.culprits] == [
        (2, "collective-mismatch")
    ]
    assert found.kind == "collective-mismatch"
    assert "ranks 4-5, 7: waited for" in "".join(found.evidence)
    assert {wait.rank for wait in found.waits} == {0, 1, 3, 6}
    without = facts("gloo_stage_skips", 6, size=8)
    assert without.culprits == ()


def test_a_rank_that_is_in_a_later_call_is_named_though_others_seem_to_stand() -> None:
    found = facts("gloo_left_loop", size=6)
    assert [(culprit.rank, culprit.kind) for culprit in found.culprits] == [
        (5, "collective-mismatch")
    ]
    assert "in which rank 2 waits for it, and which 2 other ranks made first" in (
        found.culprits[0].reason
    )
    # One other rank alone does not say which of the two calls comes first.
    assert facts("gloo_left_loop", 1, size=6).culprits == ()


def test_everybody_else_is_told_what_it_waits_for() -> None:
    waits = {wait.rank: wait for wait in facts("gloo_two_groups").waits}
    assert set(waits) == {1, 2, 3}
    assert waits[1].waits_for == (0,)
    assert waits[2].waits_for == (0, 1)
    assert "all_reduce of 32 Float" in waits[3].operation


def test_the_culprit_without_a_dump_is_named_where_nothing_else_explains_the_wait() -> None:
    found = facts("gloo_sleeper", 2)
    assert {culprit.rank for culprit in found.culprits} == {2}
    assert found.kind == "no-dump"
    assert found.strength < facts("gloo_sleeper").strength


def test_an_innocent_without_a_dump_is_not_named() -> None:
    found = facts("gloo_sleeper", 3)
    assert {culprit.rank for culprit in found.culprits} == {2}


def test_who_went_on_since_the_earlier_dumps_is_not_stuck() -> None:
    def dumps(scenario: str) -> dict[int, bytes]:
        folder = FIXTURES / scenario
        return {rank: (folder / f"trace_{rank}.json").read_bytes() for rank in range(4)}

    now = dumps("gloo_sleeper")
    still = explain(now, earlier=now)
    assert {culprit.rank for culprit in still.culprits} == {2}
    without_last = explain(dumps("gloo_two_groups"), earlier=dumps("gloo_outside"))
    assert {culprit.rank for culprit in without_last.culprits} == {0}
    moved = explain(dumps("gloo_outside") | {2: now[0]}, earlier=dumps("gloo_outside"))
    assert moved.kind == "running"
    assert moved.culprits == ()

"""Processes that are alike become one node, and the graph keeps its parts."""

from __future__ import annotations

from ray_sentinel.waitgraph.alike import folded
from ray_sentinel.waitgraph.facts import (
    Broken,
    Moves,
    WaitFact,
    WaitNode,
    WaitsFor,
    not_reached,
)
from ray_sentinel.waitgraph.solver import solve

STEP = WaitNode("operation", "step")
OTHER = WaitNode("operation", "other")


def rank(number: int) -> WaitNode:
    return WaitNode("process", f"rank {number}")


def inside(number: int, operation: WaitNode = STEP) -> WaitsFor:
    return WaitsFor(who=rank(number), awaited=operation, how="in")


def missing(number: int, operation: WaitNode = STEP) -> WaitsFor:
    return not_reached(rank(number), operation)


def test_ranks_that_wait_in_the_same_way_are_one_node() -> None:
    facts, groups = folded([*(inside(n) for n in range(7)), missing(7)])
    assert facts == [inside(0), missing(7)]
    assert {node: list(alike) for node, alike in groups.items()} == {
        rank(0): [rank(n) for n in range(7)],
        rank(7): [rank(7)],
    }


def test_what_is_known_of_one_alone_keeps_it_apart() -> None:
    known: list[WaitFact] = [
        Moves(process=rank(1)),
        Broken(process=rank(2), why="is stopped"),
        missing(3, OTHER),
    ]
    _, groups = folded([*(inside(n) for n in range(5)), *known])
    assert sorted(map(len, groups.values())) == [1, 1, 1, 2]


def test_a_circle_is_still_one() -> None:
    facts: list[WaitFact] = [
        *(inside(n) for n in range(4)),
        *(missing(n, OTHER) for n in range(4)),
        *(inside(n, OTHER) for n in range(4, 8)),
        *(missing(n) for n in range(4, 8)),
    ]
    before, after = solve(facts), solve(folded(facts)[0])
    assert [root.kind for root in before] == [root.kind for root in after] == ["circle"]


def test_processes_that_wait_for_each_other_are_not_alike() -> None:
    facts: list[WaitFact] = [
        WaitsFor(who=rank(0), awaited=rank(1), how="get"),
        WaitsFor(who=rank(1), awaited=rank(0), how="get"),
    ]
    assert folded(facts)[0] == facts

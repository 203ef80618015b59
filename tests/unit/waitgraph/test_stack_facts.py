"""Stacks of ranks as facts of the graph of waits."""

from __future__ import annotations

from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.facts import Broken, Elsewhere, Moves, WaitsFor, not_reached
from ray_sentinel.waitgraph.solver import solve
from ray_sentinel.waitgraph.stack_facts import OPERATION, Stand, facts_if, stands
from tests.support.stack_facts import elsewhere, fact


def seen(*facts: StackFact) -> tuple[Stand, ...]:
    return stands(facts, {})


def test_ranks_that_are_alike_are_one_node() -> None:
    found = seen(*(fact(r) for r in range(1_000)), elsewhere(1_000), elsewhere(1_001))
    assert [len(stand.ranks) for stand in found] == [1_000, 2]
    assert [stand.side for stand in found] == ["waits", "apart"]


def test_who_does_not_wait_is_the_root_that_a_chain_leads_to() -> None:
    inside, away = seen(*(fact(r) for r in range(3)), elsewhere(3))
    (root,) = solve(facts_if([inside], [away], None))
    assert (root.kind, root.members) == ("standing", (away.node,))
    assert [edge.awaited for edge in root.chain] == [OPERATION, away.node]
    assert root.why == "in sleep at sleep (x.py:4)"


def test_facts_name_what_is_seen_and_accuse_nobody() -> None:
    inside, away = seen(fact(0), elsewhere(1, "storage-wait", state="D"))
    missing = not_reached(away.node, OPERATION, away.fact.tool)
    waits, absent, what = facts_if([inside], [away], None)
    assert (type(waits), absent, type(what)) == (WaitsFor, missing, Elsewhere)
    waits, absent, what = facts_if([inside], [away], "kernel-blocked")
    assert (type(waits), absent, type(what)) == (WaitsFor, missing, Broken)


def test_an_operation_goes_on_if_most_of_those_in_it_moved() -> None:
    few = [fact(r) for r in range(3)]
    many = [fact(r, label="in another") for r in range(3, 7)]
    moved = {one.process: "moved" for one in many}
    found = stands([*few, *many], moved)  # type: ignore[arg-type]
    assert Moves(process=OPERATION) in list(facts_if(found, [], None))
    assert Moves(process=OPERATION) not in list(facts_if(found[:1], [], None))

"""Roots of the graph of waits: who holds everybody up, whatever the witnesses are."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.waitgraph.facts import (
    RUNS_IN,
    Broken,
    Elsewhere,
    Moves,
    Mute,
    WaitFact,
    WaitNode,
    WaitsFor,
    not_reached,
)
from ray_sentinel.waitgraph.graph import build, parts_of
from ray_sentinel.waitgraph.solver import GraphRoot, solve


def process(name: str) -> WaitNode:
    return WaitNode("process", name)


def call(name: str) -> WaitNode:
    return WaitNode("call", name)


DRIVER, TRAINER, ROLLOUT, OTHER = map(process, ("driver", "trainer", "rollout", "other"))
OPERATION = WaitNode("operation", "[0,1]:1204")
LOCK = WaitNode("resource", "/data/lock")


def waits(who: WaitNode, awaited: WaitNode, *, any_of: bool = False) -> WaitsFor:
    return WaitsFor(who=who, awaited=awaited, how="ray.get", any_of=any_of)


def runs(who: WaitNode, name: str) -> WaitsFor:
    return WaitsFor(who=call(name), awaited=who, how=RUNS_IN)


def only(facts: list[WaitFact]) -> GraphRoot:
    roots = solve(facts)
    assert len(roots) == 1, roots
    return roots[0]


def path(root: GraphRoot) -> list[str]:
    return [root.chain[0].who.key, *(edge.awaited.key for edge in root.chain)]


def test_a_chain_leads_through_calls_and_a_collective_to_the_one_that_sleeps() -> None:
    rank = process("rank 1")
    root = only(
        [
            waits(DRIVER, call("update")),
            runs(rank, "update"),
            WaitsFor(who=rank, awaited=OPERATION, how="all_reduce"),
            not_reached(TRAINER, OPERATION),
            waits(TRAINER, call("generate")),
            runs(ROLLOUT, "generate"),
            Elsewhere(process=ROLLOUT, place="score (reward.py:88)", doing="sleeping"),
        ]
    )
    assert (root.kind, root.members) == ("standing", (ROLLOUT,))
    assert root.why == "sleeping in score (reward.py:88)"
    assert path(root) == [
        "driver",
        "update",
        "rank 1",
        "[0,1]:1204",
        "trainer",
        "generate",
        "rollout",
    ]
    assert set(root.waiters) == {DRIVER, rank, TRAINER}


def test_a_process_that_moves_is_no_culprit() -> None:
    root = only([waits(DRIVER, call("c")), runs(TRAINER, "c"), _moves(TRAINER)])
    assert root.kind == "works"


def _moves(node: WaitNode) -> Moves:
    return Moves(process=node)


def test_of_two_awaited_only_the_one_that_stands_holds_the_waiter_up() -> None:
    facts: list[WaitFact] = [
        waits(DRIVER, TRAINER),
        waits(DRIVER, ROLLOUT),
        _moves(TRAINER),
        Elsewhere(process=ROLLOUT, place="f (a.py:1)", doing="sleeping"),
    ]
    stuck = [root for root in solve(facts) if root.kind == "standing"]
    assert [root.members for root in stuck] == [(ROLLOUT,)]
    assert all(DRIVER not in root.waiters for root in solve(facts) if root.kind == "works")


def test_who_needs_any_of_several_is_not_held_up_by_the_one_that_stands() -> None:
    facts: list[WaitFact] = [
        waits(DRIVER, TRAINER, any_of=True),
        waits(DRIVER, ROLLOUT, any_of=True),
        _moves(TRAINER),
        Elsewhere(process=ROLLOUT, place="f (a.py:1)", doing="sleeping"),
    ]
    assert [(root.kind, root.members) for root in solve(facts)] == [("works", (TRAINER,))]


def test_who_needs_any_of_several_is_held_up_when_all_stand() -> None:
    facts: list[WaitFact] = [
        waits(DRIVER, TRAINER, any_of=True),
        waits(DRIVER, ROLLOUT, any_of=True),
        Elsewhere(process=TRAINER, place="f (a.py:1)", doing="sleeping"),
        Elsewhere(process=ROLLOUT, place="f (a.py:1)", doing="sleeping"),
    ]
    assert [root.kind for root in solve(facts)] == ["standing", "standing"]


def test_a_circle_is_told_edge_by_edge_with_who_waits_for_it() -> None:
    a, b = process("a"), process("b")
    root = only(
        [
            waits(DRIVER, call("run")),
            runs(a, "run"),
            waits(a, call("pong")),
            WaitsFor(who=call("pong"), awaited=b, how="is queued at"),
            waits(b, call("ping")),
            WaitsFor(who=call("ping"), awaited=a, how="is queued at"),
        ]
    )
    assert root.kind == "circle"
    assert {node.key for node in root.members} == {"a", "b", "ping", "pong"}
    assert path(root) == ["driver", "run", "a", "pong", "b", "ping", "a"]
    assert root.waiters == (DRIVER,)


def test_a_circle_that_waits_for_something_outside_is_no_root() -> None:
    a, b = process("a"), process("b")
    root = only(
        [
            waits(a, b),
            waits(b, a),
            waits(b, ROLLOUT),
            Elsewhere(process=ROLLOUT, place="f (a.py:1)", doing="sleeping"),
        ]
    )
    assert root.members == (ROLLOUT,)


def test_a_circle_that_waits_for_something_that_works_too_is_a_root() -> None:
    a, b = process("a"), process("b")
    roots = solve([waits(a, b), waits(b, a), waits(b, ROLLOUT), _moves(ROLLOUT)])
    assert [(root.kind, set(root.members)) for root in roots] == [("circle", {a, b})]


def test_a_broken_process_waits_for_nobody_whatever_its_stack_shows() -> None:
    root = only(
        [
            waits(DRIVER, TRAINER),
            waits(TRAINER, ROLLOUT),
            Broken(process=TRAINER, why="is stopped by a signal"),
        ]
    )
    assert (root.kind, root.members) == ("broken", (TRAINER,))
    assert root.why == "is stopped by a signal"


def test_what_a_broken_process_was_asked_for_does_not_go_on_whoever_else_does() -> None:
    any_of = [waits(DRIVER, call(name), any_of=True) for name in ("generate", "update")]
    facts: list[WaitFact] = [
        *any_of,
        runs(TRAINER, "update"),
        WaitsFor(who=call("generate"), awaited=ROLLOUT, how="is queued at"),
        _moves(TRAINER),
        Broken(process=ROLLOUT, why="is stopped by a signal"),
        Broken(process=OTHER, why="is stopped by a signal"),
    ]
    told = [(root.kind, root.members, root.waiters) for root in solve(facts)]
    assert told == [("works", (TRAINER,), (DRIVER,)), ("broken", (ROLLOUT,), ())]


def test_a_held_resource_leads_to_its_holder_and_a_free_one_is_told_as_such() -> None:
    held: list[WaitFact] = [
        waits(TRAINER, LOCK),
        WaitsFor(who=LOCK, awaited=OTHER, how="is held by"),
        Elsewhere(process=OTHER, place="f (a.py:1)", doing="sleeping"),
    ]
    assert only(held).members == (OTHER,)
    assert (only(held[:1]).kind, only(held[:1]).members) == ("unheld", (LOCK,))


def test_a_collective_that_all_have_come_to_accuses_nobody() -> None:
    facts: list[WaitFact] = [
        WaitsFor(who=node, awaited=OPERATION, how="all_reduce") for node in (TRAINER, ROLLOUT)
    ]
    assert (only(facts).kind, only(facts).members) == ("complete", (OPERATION,))


def test_the_chain_ends_where_knowledge_ends() -> None:
    root = only([waits(DRIVER, TRAINER), Mute(process=TRAINER, why="py-spy: no permission")])
    assert (root.kind, root.why) == ("mute", "py-spy: no permission")


def test_nobody_is_named_for_whom_nobody_waits() -> None:
    assert solve([Elsewhere(process=TRAINER, place="f (a.py:1)", doing="sleeping")]) == ()
    assert solve([]) == ()


def test_a_chain_of_ten_thousand_waits_is_followed() -> None:
    nodes = [process(f"p{number:05}") for number in range(10_000)]
    facts: list[WaitFact] = [waits(one, other) for one, other in pairwise(nodes)]
    root = only([*facts, Elsewhere(process=nodes[-1], place="f (a.py:1)", doing="sleeping")])
    assert root.members == (nodes[-1],)
    assert len(root.chain) == len(root.waiters) == 9_999


_NODES = st.integers(0, 7).map(lambda number: process(f"p{number}"))
_EDGES = st.lists(st.builds(waits, _NODES, _NODES, any_of=st.booleans()), max_size=24)


@given(_EDGES, st.sets(_NODES))
def test_every_waiter_reaches_a_root_and_no_root_waits_outside_itself(
    edges: list[WaitsFor], moving: set[WaitNode]
) -> None:
    facts: list[WaitFact] = [*edges, *(_moves(node) for node in sorted(moving))]
    graph = build(facts)
    roots = solve(facts)
    works = [root for root in roots if root.kind == "works"]
    going_on = {*graph.moving, *(node for root in works for node in root.waiters)}
    for root in roots:
        members = set(root.members)
        outside = {to for node in members for to in graph.awaited(node)} - members
        assert outside <= going_on
        assert not outside or root.kind == "circle"
        assert not members & set(root.waiters)
        for one, other in pairwise(root.chain):
            assert one.awaited == other.who
        if root.chain:
            assert root.chain[-1].awaited in members
    explained = {node for root in roots for node in (*root.members, *root.waiters)}
    assert {node for node in graph.edges if node not in graph.moving} <= explained


@given(_EDGES)
def test_components_are_a_partition_with_what_is_awaited_first(edges: list[WaitsFor]) -> None:
    graph = build(edges)
    parts = parts_of(graph)
    assert sorted(node for part in parts for node in part) == list(graph.nodes)
    place = {node: index for index, part in enumerate(parts) for node in part}
    assert all(place[to] <= place[node] for node in graph.nodes for to in graph.awaited(node))


@given(_EDGES, st.randoms(use_true_random=False))
def test_the_order_of_facts_does_not_matter(edges: list[WaitsFor], random: object) -> None:
    unique = list({(edge.who, edge.awaited): edge for edge in edges}.values())
    shuffled = unique.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    told = [(root.kind, set(root.members), root.waiters) for root in solve(unique)]
    assert told == [(root.kind, set(root.members), root.waiters) for root in solve(shuffled)]


def test_a_root_tells_what_is_proven_of_it_and_how_often_that_was_seen() -> None:
    root = only(
        [
            WaitsFor(who=TRAINER, awaited=ROLLOUT, how="ray.get"),
            Broken(process=ROLLOUT, why="seen once", kind="gil-held", looks=1),
            Broken(process=ROLLOUT, why="is stopped", kind="rank-stopped"),
            Broken(process=ROLLOUT, why="is blocked", kind="kernel-blocked"),
        ]
    )
    assert (root.fault, root.looks, root.why) == ("rank-stopped", None, "is stopped")


def test_many_that_the_same_wait_for_are_reached_once_and_each_chain_ends_at_its_own() -> None:
    waiting = [process(f"waits {number}") for number in range(300)]
    missing = [process(f"missing {number}") for number in range(300)]
    facts: list[WaitFact] = [waits(one, OPERATION) for one in waiting]
    facts += [not_reached(one, OPERATION) for one in missing]
    roots = solve(facts)
    assert {root.members for root in roots} == {(one,) for one in missing}
    assert roots[0].waiters == tuple(sorted(waiting))
    assert all(root.waiters is roots[0].waiters for root in roots)
    assert all(root.chain[-1].awaited == root.members[0] for root in roots)

"""From the graph of waits to its roots: what everybody else waits for.

1. What moves is slow, not stuck.
2. A strongly connected part that waits for nothing outside itself is a root; what goes on while
   the part does not, and the other way round, does not count.
3. A node that waits for all of several things goes on when all of them go on; one that waits for
   any of them, when one does. A node that goes on is not held up by one that does not.
4. A root of one process is broken, stands still, works, is idle, or cannot be examined; a root of
   several nodes is a circle; any other root is something that nobody holds, or that all have come
   to.
5. A root holds up processes that wait for it, or it is broken and has something to do: what was
   requested of it does not go on, whatever else does.
"""

from __future__ import annotations

import math
from collections import ChainMap, deque
from collections.abc import Container, Iterable, Mapping
from typing import Literal

import msgspec

from ray_sentinel.waitgraph.facts import (
    QUEUED,
    Broken,
    Elsewhere,
    FactKind,
    Mute,
    WaitFact,
    WaitNode,
    WaitsFor,
)
from ray_sentinel.waitgraph.graph import WaitGraph, build, parts_of

RootKind = Literal["broken", "standing", "works", "idle", "mute", "circle", "unheld", "complete"]
"""``broken``: a process that cannot go on. ``standing``: one that stood where it waits for nobody,
which a single look cannot tell from a long sleep. ``works``: it moves, or is on a CPU.
``idle``: a process that is asked for nothing. ``mute``: nothing can be learned of it. ``circle``:
its members wait for each other. ``unheld``: a call or a resource that nobody has. ``complete``: an
operation that all have come to, and that does not end."""

Part = tuple[WaitNode, ...]


class GraphRoot(msgspec.Struct, frozen=True, kw_only=True):
    """What is waited for in the end."""

    kind: RootKind
    members: tuple[WaitNode, ...]
    """One node, or all members of a circle, in the order in which they wait for each other as far
    as one round leads through them."""
    why: str
    """What it does, in words; empty if unknown."""
    fault: FactKind = ""
    """The kind of the fact that says so."""
    looks: int | None = None
    """How often that was seen, looks apart; None if once is proof."""
    witness: str
    """Who says so; empty if ``why`` is."""
    waiters: tuple[WaitNode, ...]
    """The processes outside of it that wait for it, directly or not."""
    chain: tuple[WaitsFor, ...]
    """The waits from a process that nobody waits for to the root; for a circle, then once around
    it."""


def solve(facts: Iterable[WaitFact], needed: Container[WaitNode] = ()) -> tuple[GraphRoot, ...]:
    """The roots that a process waits for, the cycles, and the processes that cannot go on with what
    was requested of them; those with the most waiters first. ``needed`` are nodes without which
    nothing goes on, such as a job's driver; they need no waiters."""
    graph = build(facts)
    parts = parts_of(graph)
    awaited = {edge.awaited for edges in graph.edges.values() for edge in edges}
    on = _going_on(graph, parts)
    reverse = _reversed(graph, on)
    alike: dict[Part, list[Part]] = {}
    for part in parts:
        members = set(part)
        outside = (to for node in part for to in graph.awaited(node) if to not in members)
        if not any((to in on) == (part[0] in on) for to in outside):
            # Thousands that have not come to one operation are awaited by the same nodes.
            nearest = tuple(_nearest(part, reverse))
            alike.setdefault(nearest or part, []).append(part)
    roots = []
    for found in alike.values():
        reaching = _reaching(found[0], reverse)
        inside = set(found[0])
        processes = [n for n in reaching if n.kind == "process" and n not in inside]
        waiters = tuple(sorted(processes))
        # The chain begins at the farthest of those that nobody waits for.
        free = [node for node in processes if node not in awaited]
        far = free or processes
        for part in found:
            kind, fact = _described(graph, part)
            asked = part[0] in needed or (kind == "broken" and part[0] in awaited)
            if len(part) == 1 and not waiters and not asked:
                continue
            way = ChainMap(_nearest(part, reverse), reaching)
            roots.append(
                GraphRoot(
                    kind=kind,
                    members=tuple(n for n in _in_order(graph, part) if n.kind != "several"),
                    why=fact.why,
                    fault=fact.kind,
                    looks=fact.looks,
                    witness=fact.witness,
                    waiters=waiters,
                    chain=_chain(graph, part, way, far[-1] if far else part[0]),
                )
            )
    return tuple(sorted(roots, key=lambda root: (-len(root.waiters), root.members)))


def _going_on(graph: WaitGraph, parts: Iterable[Part]) -> set[WaitNode]:
    """The nodes whose wait will end by itself, as far as can be seen."""
    on: set[WaitNode] = set()
    for part in parts:  # awaited nodes come first
        if len(part) > 1:
            # A circle ends if one of its members waits for any of several nodes, and one of these
            # goes on.
            leaves = (e for node in part for e in graph.edges.get(node, ()) if e.any_of)
            if any(edge.awaited in on for edge in leaves):
                on.update(part)
            continue
        edges = graph.edges.get(part[0], ())
        one = [edge.awaited in on for edge in edges if edge.any_of]
        each = [edge.awaited in on for edge in edges if not edge.any_of]
        if (all(each) and (not one or any(one))) if edges else part[0] in graph.moving:
            on.add(part[0])
    return on


def _reversed(graph: WaitGraph, on: set[WaitNode]) -> dict[WaitNode, list[WaitsFor]]:
    """The edges by what is awaited, without those that hold nobody up."""
    found: dict[WaitNode, list[WaitsFor]] = {}
    for node, edges in graph.edges.items():
        for edge in edges:
            # A node that goes on is not held up by one that does not; nor the other way round.
            if (node in on) == (edge.awaited in on):
                found.setdefault(edge.awaited, []).append(edge)
    for reaching in found.values():
        # Among two ways of the same length, the one through the running call says more, and the one
        # through the oldest call that is running.
        reaching.sort(key=lambda edge: (edge.how == QUEUED, edge.since or math.inf))
    return found


def _nearest(
    part: Part, reverse: Mapping[WaitNode, list[WaitsFor]]
) -> dict[WaitNode, WaitsFor | None]:
    """The nodes that wait for a single node themselves, each with its edge; none for a circle."""
    return {edge.who: edge for edge in reverse.get(part[0], ())} if len(part) == 1 else {}


def _reaching(
    part: Part, reverse: Mapping[WaitNode, list[WaitsFor]]
) -> dict[WaitNode, WaitsFor | None]:
    """The nodes that wait for a part in the end, each with the first edge of its shortest way
    there; members of the part have none. The nearest come first."""
    seen: dict[WaitNode, WaitsFor | None] = dict.fromkeys(part)
    queue = deque(part)
    while queue:
        for edge in reverse.get(queue.popleft(), ()):
            if edge.who not in seen:
                seen[edge.who] = edge
                if edge.who.kind == "several":  # no step of its own
                    queue.appendleft(edge.who)
                else:
                    queue.append(edge.who)
    return seen


def _described(graph: WaitGraph, part: Part) -> tuple[RootKind, Broken | Elsewhere | Mute]:
    """The kind of a root, and the fact that shows it."""
    node = part[0]
    fact = graph.known.get(node, _NOTHING)
    if len(part) > 1:
        return "circle", _CIRCLE
    if isinstance(fact, Broken):
        return "broken", fact
    if node in graph.moving:
        return "works", _NOTHING if isinstance(fact, Mute) else fact
    if fact is not _NOTHING:
        return ("mute" if isinstance(fact, Mute) else "standing"), fact
    if node.kind == "process":
        return "idle", fact
    return ("complete" if node.kind == "operation" else "unheld"), fact


_NOTHING = Elsewhere(process=WaitNode("process", ""), place="", doing="")
"""What is known of a node of which nothing is."""
_CIRCLE = msgspec.structs.replace(_NOTHING, doing="they wait for each other")


def _chain(
    graph: WaitGraph, part: Part, way: Mapping[WaitNode, WaitsFor | None], beginning: WaitNode
) -> tuple[WaitsFor, ...]:
    chain = []
    node = beginning
    while (edge := way.get(node)) is not None:
        chain.append(edge)
        node = edge.awaited
    while node.kind == "several":  # a circle is entered at one of the nodes that it stands for
        edge = next(edge for edge in graph.edges[node] if edge.awaited in part)
        chain.append(edge)
        node = edge.awaited
    return (*chain, *_round(graph, part, node))


def _in_order(graph: WaitGraph, part: Part) -> Part:
    around = _round(graph, part, part[0])
    inside = dict.fromkeys(edge.who for edge in around)
    return (*inside, *(node for node in part if node not in inside))


def _round(graph: WaitGraph, part: Part, start: WaitNode) -> tuple[WaitsFor, ...]:
    """The shortest way inside a circle from ``start`` back to it; none in a part with a single
    node."""
    if len(part) == 1:
        return ()
    members = set(part)
    came: dict[WaitNode, WaitsFor] = {}
    queue = deque([start])
    while start not in came:  # a strongly connected part leads back
        for edge in graph.edges.get(queue.popleft(), ()):
            if edge.awaited in members and edge.awaited not in came:
                came[edge.awaited] = edge
                queue.append(edge.awaited)
    way = [came[start]]
    while way[-1].who != start:
        way.append(came[way[-1].who])
    return tuple(reversed(way))

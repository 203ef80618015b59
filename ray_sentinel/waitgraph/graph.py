"""The graph of waits: an edge leads from a waiter to what it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from ray_sentinel.model.strong_components import components
from ray_sentinel.waitgraph.facts import (
    NOT_REACHED,
    RUNS_IN,
    Broken,
    Elsewhere,
    Holds,
    Moves,
    Mute,
    NotReached,
    Runs,
    WaitFact,
    WaitNode,
    WaitsFor,
)

Seen = TypeVar("Seen", Broken, Elsewhere, Mute)


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """``waiter`` waits for ``awaited``."""

    waiter: WaitNode
    awaited: WaitNode
    how: str
    since: float | None = None
    witness: str = ""
    any_of: bool = False


class WaitGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Edges, and the facts about each process."""

    edges: Mapping[WaitNode, tuple[Edge, ...]]
    """Edges by waiter; a node that waits for nothing is not in it."""
    nodes: tuple[WaitNode, ...]
    broken: Mapping[WaitNode, Broken]
    elsewhere: Mapping[WaitNode, Elsewhere]
    mute: Mapping[WaitNode, Mute]
    moving: frozenset[WaitNode]

    def awaited(self, node: WaitNode) -> Iterator[WaitNode]:
        """What a node waits for."""
        return (edge.awaited for edge in self.edges.get(node, ()))


def build(facts: Iterable[WaitFact]) -> WaitGraph:
    """The graph of the given facts. If several give the same edge, or say the same sort of thing
    about one node, the first of them counts, and one that was seen once only without others.

    A process that is broken, or was seen moving, waits for nobody: it holds the others up itself,
    whatever its stack shows.
    """
    facts = list(facts)
    broken = _first(fact for fact in facts if isinstance(fact, Broken))
    moving = frozenset(fact.process for fact in facts if isinstance(fact, Moves)) - broken.keys()
    edges: dict[WaitNode, dict[WaitNode, Edge]] = {}
    for edge in _edges(facts):
        if edge.waiter not in broken and edge.waiter not in moving and edge.waiter != edge.awaited:
            edges.setdefault(edge.waiter, {}).setdefault(edge.awaited, edge)
    elsewhere = _first(fact for fact in facts if isinstance(fact, Elsewhere))
    mute = _first(fact for fact in facts if isinstance(fact, Mute))
    nodes = {
        *edges,
        *(awaited for found in edges.values() for awaited in found),
        *broken,
        *moving,
        *elsewhere,
        *mute,
    }
    return WaitGraph(
        edges={node: tuple(found.values()) for node, found in edges.items()},
        nodes=tuple(sorted(nodes)),
        broken=broken,
        elsewhere=elsewhere,
        mute=mute,
        moving=moving,
    )


def _first(facts: Iterable[Seen]) -> dict[WaitNode, Seen]:
    found: dict[WaitNode, Seen] = {}
    for fact in facts:
        old = found.get(fact.process)
        if old is None or (old.looks == 1 and fact.looks != 1):
            found[fact.process] = fact
    return found


def _edges(facts: Iterable[WaitFact]) -> Iterator[Edge]:
    for fact in facts:
        if isinstance(fact, WaitsFor):
            yield Edge(
                waiter=fact.who,
                awaited=fact.awaited,
                how=fact.how,
                since=fact.since,
                witness=fact.witness,
                any_of=fact.any_of,
            )
        elif isinstance(fact, Runs):
            yield Edge(
                waiter=fact.call,
                awaited=fact.process,
                how=RUNS_IN,
                since=fact.since,
                witness=fact.witness,
            )
        elif isinstance(fact, NotReached):
            yield Edge(
                waiter=fact.operation,
                awaited=fact.process,
                how=NOT_REACHED,
                witness=fact.witness,
            )
        elif isinstance(fact, Holds):
            yield Edge(
                waiter=fact.resource, awaited=fact.process, how="is held by", witness=fact.witness
            )


def parts_of(graph: WaitGraph) -> list[tuple[WaitNode, ...]]:
    """The strongly connected components; each comes after all components that it waits for."""
    edges = {node: tuple(graph.awaited(node)) for node in graph.nodes}
    return [tuple(sorted(part)) for part in components(edges)]

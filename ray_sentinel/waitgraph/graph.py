"""The graph of waits: an edge leads from a waiter to what it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from ray_sentinel.model.strong_components import components
from ray_sentinel.waitgraph.facts import (
    Broken,
    Elsewhere,
    Moves,
    Mute,
    WaitFact,
    WaitNode,
    WaitsFor,
)

Seen = TypeVar("Seen", Broken, Elsewhere, Mute)


class WaitGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Edges, and the facts about each process."""

    edges: Mapping[WaitNode, tuple[WaitsFor, ...]]
    """Edges by waiter; a node that waits for nothing is not in it."""
    nodes: tuple[WaitNode, ...]
    known: Mapping[WaitNode, Broken | Elsewhere | Mute]
    """What is known of each process; the first of these three, if several are."""
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
    elsewhere = _first(fact for fact in facts if isinstance(fact, Elsewhere))
    mute = _first(fact for fact in facts if isinstance(fact, Mute))
    moving = frozenset(fact.process for fact in facts if isinstance(fact, Moves)) - broken.keys()
    edges: dict[WaitNode, dict[WaitNode, WaitsFor]] = {}
    for edge in (fact for fact in facts if isinstance(fact, WaitsFor)):
        if edge.who not in broken and edge.who not in moving and edge.who != edge.awaited:
            edges.setdefault(edge.who, {}).setdefault(edge.awaited, edge)
    known: dict[WaitNode, Broken | Elsewhere | Mute] = {**mute, **elsewhere, **broken}
    awaited = (node for found in edges.values() for node in found)
    return WaitGraph(
        edges={node: tuple(found.values()) for node, found in edges.items()},
        nodes=tuple(sorted({*edges, *awaited, *known, *moving})),
        known=known,
        moving=moving,
    )


def _first(facts: Iterable[Seen]) -> dict[WaitNode, Seen]:
    found: dict[WaitNode, Seen] = {}
    for fact in facts:
        old = found.get(fact.process)
        if old is None or (old.looks == 1 and fact.looks != 1):
            found[fact.process] = fact
    return found


def parts_of(graph: WaitGraph) -> list[tuple[WaitNode, ...]]:
    """The strongly connected components; each comes after all components that it waits for."""
    edges = {node: tuple(graph.awaited(node)) for node in graph.nodes}
    return [tuple(sorted(part)) for part in components(edges)]

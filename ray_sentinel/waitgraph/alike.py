"""Processes of which the same is known are one node: thousands of ranks wait in the same way, and
the solver walks the graph once for each root."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ray_sentinel.waitgraph.facts import WaitFact, WaitNode

_ANY = WaitNode("process", "")
"""In place of the process that a fact is about."""
_NODES = ("who", "awaited", "process")
"""The fields of facts that hold nodes."""


def folded(
    facts: Iterable[WaitFact],
) -> tuple[list[WaitFact], Mapping[WaitNode, Sequence[WaitNode]]]:
    """The facts about one of each set of processes that are alike, and by it all processes that it
    stands for.

    Two processes are alike if the facts about them differ in nothing but the process. They wait for
    the same things and are awaited by the same, so no strongly connected part is lost or split.
    """
    facts = list(facts)
    known: dict[WaitNode, set[WaitFact]] = defaultdict(set)
    for fact in facts:
        for field, node in _processes(fact):
            known[node].add(msgspec.structs.replace(fact, **{field: _ANY}))
    alike: dict[frozenset[WaitFact], list[WaitNode]] = defaultdict(list)
    for node, found in known.items():
        alike[frozenset(found)].append(node)
    groups = {nodes[0]: nodes for nodes in alike.values()}
    kept = [f for f in facts if all(node in groups for _, node in _processes(f))]
    return kept, groups


def _processes(fact: WaitFact) -> list[tuple[str, WaitNode]]:
    found = ((field, getattr(fact, field, None)) for field in _NODES)
    return [(name, node) for name, node in found if node is not None and node.kind == "process"]

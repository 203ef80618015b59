"""Strongly connected components of any graph, without recursion: a chain of waits may be thousands
long."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)


def components(edges: Mapping[Node, Sequence[Node]]) -> list[list[Node]]:
    """Tarjan's strongly connected components, each before those that lead to it.

    R. Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1 (1972).
    """
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    open_nodes: list[Node] = []
    is_open: set[Node] = set()
    result: list[list[Node]] = []
    for root in edges:
        if root in index:
            continue
        work: list[tuple[Node, int]] = [(root, 0)]
        while work:
            node, place = work.pop()
            if node not in index:
                index[node] = low[node] = len(index)
                open_nodes.append(node)
                is_open.add(node)
            following = edges.get(node, ())
            descended = False
            for at in range(place, len(following)):
                other = following[at]
                if other not in index:
                    work += [(node, at), (other, 0)]
                    descended = True
                    break
                if other in is_open:
                    low[node] = min(low[node], low[other])
            if not descended and low[node] == index[node]:
                result.append(_close(node, open_nodes, is_open))
    return result


def _close(node: Node, open_nodes: list[Node], is_open: set[Node]) -> list[Node]:
    component = []
    while True:
        member = open_nodes.pop()
        is_open.discard(member)
        component.append(member)
        if member == node:
            return component

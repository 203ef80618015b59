"""Many things in a row, ranges of which many processes await."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ray_sentinel.waitgraph.facts import WaitNode, WaitsFor

FEW = 32
"""Most things in a row that are waited for one by one. Beyond that, a process or call waits for
halves, which wait for their halves in turn; otherwise thousands that wait for thousands would make
millions of edges."""


class AwaitedRow:
    """Calls or groups in the order in which they were requested; many processes await ranges of
    them."""

    def __init__(self, name: str, items: Iterable[tuple[WaitNode, float | None]]) -> None:
        """``name`` is unique among rows; the items are nodes and the Unix times of their
        creation."""
        self._name = name
        self._items = tuple(items)
        self._told: set[WaitNode] = set()

    def __len__(self) -> int:
        return len(self._items)

    def awaited(self, fact: WaitsFor, low: int, high: int) -> Iterator[WaitsFor]:
        """``fact`` for each item from ``low`` up to, not including, ``high``; if it has no time,
        since their creation."""
        if high - low <= FEW:
            for at in range(low, high):
                yield self._one(fact, at, 1)
            return
        while low < high:
            size = min(low & -low or 1 << 62, 1 << (high - low).bit_length() - 1)
            one = self._one(fact, low, size)
            yield one
            yield from self._halves(one.awaited, low, size, fact)
            low += size

    def _one(self, fact: WaitsFor, low: int, size: int) -> WaitsFor:
        since = self._items[low][1] if fact.since is None and size == 1 else fact.since
        return msgspec.structs.replace(fact, awaited=self._node(low, size, fact), since=since)

    def _node(self, low: int, size: int, fact: WaitsFor) -> WaitNode:
        if size == 1:
            return self._items[low][0]
        amount = "any" if fact.any_of else "all"
        return WaitNode("several", f"{amount} of {size} from {low} on of {self._name}")

    def _halves(self, node: WaitNode, low: int, size: int, fact: WaitsFor) -> Iterator[WaitsFor]:
        if size == 1 or node in self._told:
            return
        self._told.add(node)
        half = size // 2
        for start in (low, low + half):
            one = self._one(msgspec.structs.replace(fact, who=node, since=None), start, half)
            yield one
            yield from self._halves(one.awaited, start, half, fact)

"""The agents as the coordinator asks them for evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import ray

from ray_sentinel.actors.agent_calls import AgentCalls, Late
from ray_sentinel.actors.coordinator.fleet import Fleet
from ray_sentinel.actors.messages import pack
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.incident import Writer

T = TypeVar("T")
Placed = TypeVar("Placed", Rank, Writer)


class Agents:
    """The fleet's agents. Blocks; any thread may call."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def ask(
        self,
        method: str,
        requests: Mapping[str, Any],
        kind: type[T],
        seconds: float,
        late_answer: Late | None = None,
    ) -> tuple[dict[str, T], list[str]]:
        """Call ``method`` on the agents of some nodes, each with its own entry of ``requests``.
        Returns the answers, which are of a ``kind``, by node id, and what went wrong; see
        ``AgentCalls.read``."""
        packed = {node_id: (pack(request),) for node_id, request in requests.items()}
        calls = AgentCalls(ray, self._fleet.handle, method, packed)
        return calls.read(kind, seconds, late_answer), calls.problems


def by_node(placed: Iterable[Placed]) -> dict[str, tuple[Placed, ...]]:
    """Ranks, or other processes, by their node's id."""
    nodes: dict[str, list[Placed]] = {}
    for one in placed:
        nodes.setdefault(one.node, []).append(one)
    return {node: tuple(found) for node, found in nodes.items()}

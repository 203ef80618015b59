"""Ray's nodes, with the names that the sentinel gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ray_sentinel.model.identity import Node

HEAD_RESOURCE = "node:__internal_head__"

DEATH_REASONS = {
    0: "for an unknown reason",
    1: "as it was told to",
    2: "unexpectedly",
    3: "because the autoscaler saw it preempted",
    4: "because the autoscaler found it idle",
}
"""The words for ``NodeDeathInfo.Reason`` of Ray's gcs.proto."""

EXPECTED_DEATHS = frozenset({1, 3, 4})


class RayNode(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``ray.nodes()``, as far as we use it."""

    id: str
    hostname: str
    address: str
    alive: bool
    is_head: bool = False
    port: int = 0
    """The port of its raylet."""
    metrics_port: int = 0
    """The port at which Ray serves the node's own metrics; not positive if it serves none."""
    environments_port: int = 0
    """The port of Ray's agent for runtime environments; 0 if Ray does not tell."""
    death_reason: int = 0
    death_message: str = ""


def ray_nodes(entries: Iterable[Mapping[str, Any]]) -> dict[str, RayNode]:
    """``ray.nodes()`` by node id."""
    return {
        entry["NodeID"]: RayNode(
            id=entry["NodeID"],
            hostname=entry.get("NodeManagerHostname", ""),
            address=entry.get("NodeManagerAddress", ""),
            alive=bool(entry.get("Alive")),
            is_head=HEAD_RESOURCE in entry.get("Resources", {}),
            port=int(entry.get("NodeManagerPort", 0)),
            metrics_port=int(entry.get("MetricsExportPort") or 0),
            environments_port=int(entry.get("RuntimeEnvAgentPort") or 0),
            death_reason=int(entry.get("DeathReason", 0)),
            death_message=str(entry.get("DeathReasonMessage", "")),
        )
        for entry in entries
    }


def host_label(node: RayNode, nodes: Iterable[RayNode]) -> str:
    """The short host name, or the address where several living Ray nodes share the name.

    >>> a, b = (RayNode(id=i, hostname="vm.x", address=i, alive=True) for i in ("1", "2"))
    >>> host_label(a, [a]), host_label(a, [a, b])
    ('vm', '1')
    """
    short = node.hostname.split(".")[0]
    names = Counter(other.hostname.split(".")[0] for other in nodes if other.alive)
    return short if short and names[short] <= 1 else node.address


def as_node(node: RayNode, nodes: Iterable[RayNode]) -> Node:
    """The node as a record of the model; the agent adds the boot id and the namespace."""
    return Node(
        id=node.id, host=host_label(node, nodes), address=node.address, is_head=node.is_head
    )

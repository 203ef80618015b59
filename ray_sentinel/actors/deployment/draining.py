"""Has Ray place nothing more on a node: ``python -m ray_sentinel.actors.deployment.draining HOST
WHY``.

The cluster is the one that ``RAY_ADDRESS`` names; none is looked for, as another's would be found.

Ray calls it draining (``DrainNode`` in its autoscaler.proto; ``ray drain-node`` asks for the same).
There is no way back: once nothing runs on the node, its raylet ends. The head is never drained: the
cluster would end with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.actors.deployment.cluster import connect
from ray_sentinel.actors.hosts import RayNode, host_label, ray_nodes
from ray_sentinel.errors import SentinelError, UnreachableError, UsageError


def node_called(host: str, nodes: Collection[RayNode]) -> RayNode:
    """The living node with that name or address. Raises UsageError if it cannot be drained."""
    found = [
        node
        for node in nodes
        if node.alive and host in (host_label(node, nodes), node.address, node.hostname, node.id)
    ]
    if not found:
        raise UsageError(f"{host} is no living node of this Ray cluster")
    if len(found) > 1:
        raise UsageError(f"{len(found)} Ray nodes are called {host}")
    if found[0].is_head:
        raise UsageError(f"{host} is the head of the Ray cluster, which would end with it")
    return found[0]


def drain(host: str, why: str, address: str) -> None:
    """Drain a node of the cluster at ``address`` (HOST:PORT).

    Raises UsageError if that is not allowed, UnreachableError without a cluster, SentinelError if
    Ray refuses.
    """
    if not address or address == "auto":
        raise UsageError("RAY_ADDRESS does not name the cluster")
    with connect(address) as ray:
        node = node_called(host, ray_nodes(ray.nodes()).values())
        with RayStore(ray.get_runtime_context().gcs_address) as store:
            ask_to_drain(store, node.id, why)


def ask_to_drain(store: RayStore, node_id: str, why: str) -> None:
    """Stop Ray from placing anything more on a node (id in hex). Raises SentinelError if the store
    refuses or cannot do it."""
    # Ray refuses the only other reason, idleness, while something runs on the node.
    try:
        reply = store.ask(
            "AutoscalerState",
            "DrainNode",
            node_id=bytes.fromhex(node_id),
            reason="DRAIN_NODE_REASON_PREEMPTION",
            reason_message=why,
        )
    except UnreachableError as error:
        raise SentinelError(f"this Ray cannot drain nodes: {error}") from None
    if not reply.is_accepted:
        refusal = reply.rejection_reason_message or "without a reason"
        raise SentinelError(f"Ray refuses to drain it: {refusal}")


def main(host: str, why: str) -> int:
    """The program; its last line on stderr says what went wrong."""
    try:
        drain(host, why, os.environ.get("RAY_ADDRESS", ""))
    except SentinelError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))

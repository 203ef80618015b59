"""Where this process is: its Ray node, and the machine under it."""

from __future__ import annotations

from pathlib import Path

import ray

from ray_sentinel.actors.hosts import as_node, ray_nodes
from ray_sentinel.kernel_files import boot_id
from ray_sentinel.model.identity import Node


def this_node(proc: Path = Path("/proc")) -> Node:
    """The Ray node that this actor runs on, with the machine's boot id and PID namespace.

    Raises LookupError if Ray does not list it, which happens while the node dies.
    """
    nodes = ray_nodes(ray.nodes())
    node = nodes.get(ray.get_runtime_context().get_node_id())
    if node is None:
        raise LookupError("Ray does not list this node")
    known = as_node(node, nodes.values())
    return Node(
        id=known.id,
        host=known.host,
        address=known.address,
        is_head=known.is_head,
        boot_id=boot_id(proc),
        pid_namespace=(proc / "self/ns/pid").stat().st_ino,
    )


def ray_metrics_url(node_id: str) -> str:
    """Where a Ray node serves its own metrics; "" where Ray does not tell."""
    for entry in ray.nodes():
        if entry["NodeID"] == node_id and (port := entry.get("MetricsExportPort")):
            return f"http://{entry['NodeManagerAddress']}:{port}/metrics"
    return ""

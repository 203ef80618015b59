"""Where this process is: its Ray node, its machine, its raylet, and the raylets beside it."""

from __future__ import annotations

import os
from pathlib import Path

import ray

from ray_sentinel.actors.hosts import as_node, ray_nodes
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


def boot_id(proc: Path = Path("/proc")) -> str:
    """Differs with every boot of the machine; empty where the kernel does not say."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def own_raylet(proc: Path = Path("/proc")) -> int:
    """The pid of the raylet that started this worker; 0 if none of its ancestors is one."""
    pid = os.getppid()
    while pid > 1:
        if _comm(proc / str(pid)) == "raylet":
            return pid
        pid = _parent(proc / str(pid))
    return 0


def other_raylets(own: int, proc: Path = Path("/proc")) -> frozenset[int]:
    """The raylets of other Ray nodes on this machine, of any cluster."""
    return frozenset(
        pid
        for entry in proc.iterdir()
        if entry.name.isdigit() and (pid := int(entry.name)) != own and _comm(entry) == "raylet"
    )


def _comm(folder: Path) -> str:
    try:
        return (folder / "comm").read_text().strip()
    except OSError:
        return ""


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0

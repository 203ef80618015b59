"""Pushes a plugin to every node: through the agents, independent of a shared file system that
lags."""

from __future__ import annotations

import time
from typing import Any

from ray_sentinel.cli.reach import CoordinatorConnection, coordinator
from ray_sentinel.model.metrics import CollectorStatus
from ray_sentinel.model.status import NodeStatus, Status


def push(
    address: str, file_name: str, data: bytes, collectors: tuple[str, ...], timeout: float
) -> list[dict[str, Any]]:
    """Install a plugin on all watched nodes. Returns one row per node, with the state of its
    collectors there.

    Unwatched nodes have a row too, with the reason. Raises UnreachableError if nobody watches.
    """
    end = time.monotonic() + timeout
    with coordinator(address) as found:
        status = found.ask("status", Status)
        outcomes = _install(found.ray, status.nodes, file_name, data, timeout)
        rows = [
            {"node": node.id, "host": node.host, "installed": not problem, "message": problem}
            for node, problem in zip(status.nodes, outcomes, strict=True)
        ]
        rows += [
            {"node": node.id, "host": node.host, "installed": False, "message": node.reason}
            for node in status.unwatched
        ]
        _await_collectors(found, rows, collectors, end)
    return rows


def _install(
    ray: Any, nodes: tuple[NodeStatus, ...], file_name: str, data: bytes, timeout: float
) -> list[str]:
    """What went wrong on each node; empty if nothing did."""
    pending = [_begin(ray, node, file_name, data) for node in nodes]
    waiting = [reference for reference in pending if reference is not None]
    ready: list[Any] = []
    if waiting:
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=timeout)
    return [_outcome(ray, reference, ready) for reference in pending]


def _begin(ray: Any, node: NodeStatus, file_name: str, data: bytes) -> Any:
    """A reference to the agent's answer; None if the node has no agent."""
    from ray_sentinel.actors.names import NAMESPACE, agent_name

    try:
        agent = ray.get_actor(agent_name(node.id), namespace=NAMESPACE)
    except ValueError:
        return None
    return agent.install_plugin.remote(file_name, data)


def _outcome(ray: Any, reference: Any, ready: list[Any]) -> str:
    from ray.exceptions import RayActorError, RayTaskError

    if reference is None:
        return "it has no agent now"
    if reference not in ready:
        return "its agent does not answer"
    try:
        ray.get(reference)
    except RayTaskError as error:
        return str(error.cause or error)
    except RayActorError as error:
        return f"its agent is gone: {error}"
    return ""


def _await_collectors(
    found: CoordinatorConnection, rows: list[dict[str, Any]], names: tuple[str, ...], end: float
) -> None:
    """Wait until the collectors have run on each node, and note in the rows how that went."""
    while True:
        nodes = {node.id: node for node in found.ask("status", Status).nodes}
        waiting = False
        for row in rows:
            if row["installed"]:
                seen = nodes[row["node"]].collectors if row["node"] in nodes else ()
                row["collectors"] = [status for status in seen if status.name in names]
                waiting |= len([s for s in row["collectors"] if _known(s)]) < len(names)
        if not waiting or time.monotonic() > end:
            return
        time.sleep(0.2)


def _known(status: CollectorStatus) -> bool:
    return status.success is not None or status.state == "skipped"

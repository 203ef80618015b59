"""Readings of Ray's own interface: its errors in a line, its session's folder, Ray Client.

It does not import ray, because it is also used in processes that may not have it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ray_sentinel.actors.names import AGENT_PREFIX, COORDINATOR, NAMESPACE, RELAY_PREFIX

MOST_CHARACTERS = 300


def last_line(error: BaseException) -> str:
    """The most telling line of a Ray error, the last of its traceback; the kind of error if it has
    no text.

    >>> last_line(RuntimeError("Traceback ...\\nValueError: no\\n")), last_line(OSError())
    ('ValueError: no', 'OSError')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:MOST_CHARACTERS] if lines else type(error).__name__


def session_logs() -> Path | None:
    """The ``logs`` folder of the Ray session that this process belongs to; None if Ray does not
    report it or it is not on this node."""
    from ray._private import worker

    node: Any = getattr(worker, "_global_node", None)
    if node is None:
        return None
    folder = Path(node.get_logs_dir_path())
    return folder if folder.is_dir() else None


def actor_called(ray: Any, name: str) -> Any:
    """The handle of our actor of that name; None if there is none."""
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return None


def our_actors(ray: Any) -> list[str]:
    """The names of our actors."""
    listed = ray.util.list_named_actors(all_namespaces=True)
    names = [entry["name"] for entry in listed if entry["namespace"] == NAMESPACE]
    return [name for name in names if name.startswith((COORDINATOR, AGENT_PREFIX, RELAY_PREFIX))]


# Ray Client: a driver outside the cluster, whose calls a server on the head carries out.


def client_of(ray: Any) -> Any:
    """The Ray Client by which this process is connected; None if it is an ordinary driver."""
    client = getattr(getattr(ray.util, "client", None), "ray", None)
    return client if client is not None and client.is_connected() else None


def address_of(client: Any) -> str:
    """``ray://HOST:PORT`` of its server; empty if this version of Ray keeps that elsewhere."""
    server = getattr(getattr(client.get_context(), "client_worker", None), "_conn_str", "")
    return f"ray://{server}" if server else ""

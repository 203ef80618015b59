"""Ray Client: a driver outside the cluster, whose calls a server on the head carries out."""

from __future__ import annotations

from typing import Any


def client_of(ray: Any) -> Any:
    """The client that this process is connected by; None where it is a driver like any other."""
    client = getattr(getattr(ray.util, "client", None), "ray", None)
    return client if client is not None and client.is_connected() else None


def address_of(client: Any) -> str:
    """``ray://HOST:PORT`` of its server; empty where this version of Ray keeps that elsewhere."""
    server = getattr(getattr(client.get_context(), "client_worker", None), "_conn_str", "")
    return f"ray://{server}" if server else ""

"""Nodes that Ray drains: what is left of them is to go."""

from __future__ import annotations

import time


def draining_now() -> dict[str, float]:
    """The nodes that are being drained, by id, and when each goes (Unix seconds; 0 where no time
    was given). Empty where this version of Ray does not tell."""
    from ray._private.state import state

    try:
        told = state.get_draining_nodes()
    except AttributeError:
        return {}
    return {node_id: max(0, deadline) / 1000 for node_id, deadline in told.items()}


def describe(host: str, deadline: float) -> str:
    """For people.

    >>> describe("n1", 0.0)
    'n1 is being drained: it goes once nothing runs there'
    >>> describe("n1", 3661.0)
    'n1 is being drained: it goes once nothing runs there, or at 01:01:01 UTC'
    """
    by = time.strftime(", or at %H:%M:%S UTC", time.gmtime(deadline)) if deadline else ""
    return f"{host} is being drained: it goes once nothing runs there{by}"

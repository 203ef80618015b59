"""The names of the sentinel's actors and placement groups, and their protocol version."""

from __future__ import annotations

NAMESPACE = "ray_sentinel"
"""The Ray namespace of everything that is ours."""

COORDINATOR = "coordinator"
AGENT_PREFIX = "agent-"
RELAY_PREFIX = "relay-"
GROUP_PREFIX = "ray_sentinel-"

PROTOCOL = 2
"""Version of the calls between deployer, coordinator and agents. It is raised when they could no
longer understand each other, not with every release."""


def agent_name(node_id: str) -> str:
    """Name of the agent's actor on a node."""
    return AGENT_PREFIX + node_id


def relay_name(node_id: str) -> str:
    """Name of the relay's actor on a node."""
    return RELAY_PREFIX + node_id


def group_name(node_id: str) -> str:
    """Name of the placement group that pins a node's agent, and the relay beside it."""
    return GROUP_PREFIX + node_id

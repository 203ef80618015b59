"""The per-node placement groups, and the agents that they pin."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import ray
from ray._raylet import PlacementGroupID
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ray_sentinel.actors.hosts import RayNode
from ray_sentinel.actors.names import (
    AGENT_PREFIX,
    GROUP_PREFIX,
    NAMESPACE,
    RELAY_PREFIX,
    agent_name,
    group_name,
    relay_name,
)
from ray_sentinel.actors.ray_api import actor_called, our_actors

NODE_SHARE = 0.001
"""How much we take of the resource ``node:<address>``, of which each node has 1. It takes no CPU,
and Ray refuses a bundle of only zeros."""

Groups = Mapping[str, PlacementGroup]
"""Our placement groups by node id."""

_SELECTS_BY_LABEL = "bundle_label_selector" in inspect.signature(placement_group).parameters


def group_for(node: RayNode, known: Groups) -> PlacementGroup:
    """The detached group that pins a node's agent, made if it is not among those that are
    ``known``.

    Several Ray nodes may share an address (one machine, several raylets): then only the label with
    the node's id distinguishes them, which older versions of Ray cannot select by.
    """
    if (found := known.get(node.id)) is not None:
        return found
    options: dict[str, Any] = {}
    if _SELECTS_BY_LABEL:
        options["bundle_label_selector"] = [{"ray.io/node-id": node.id}]
    return placement_group(
        [{f"node:{node.address}": NODE_SHARE}],
        lifetime="detached",
        name=group_name(node.id),
        **options,
    )


def has_agent(node_id: str) -> bool:
    """Whether a node's agent was created and not dropped since."""
    return actor_called(ray, agent_name(node_id)) is not None


def start_agent(node: RayNode, config: bytes, known: Groups) -> Any:
    """The node's agent, created if it does not exist yet. ``known`` are the recent ``groups``."""
    from ray_sentinel.actors.agent.actor import CALLS_AT_ONCE, Agent

    name = agent_name(node.id)
    if (found := actor_called(ray, name)) is not None:
        return found
    options = _options(name, group_for(node, known))
    return ray.remote(Agent).options(max_concurrency=CALLS_AT_ONCE, **options).remote(config)


def start_relay(node: RayNode, known: Groups) -> Any:
    """The relay in the group of a node's agent, created if it does not exist yet. ``known`` are the
    recent ``groups``.

    Raises ValueError if there is no group: a new one would outlive the agent that was taken off.
    """
    from ray_sentinel.actors.relay.actor import Relay

    if (found := known.get(node.id)) is None:
        raise ValueError("its agent has no placement group")
    options = _options(relay_name(node.id), found)
    return ray.remote(Relay).options(**options).remote()


def _options(name: str, group: PlacementGroup) -> dict[str, Any]:
    """The options of an actor of ours that its group pins to a node."""
    return {
        "name": name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": 0,
        # Ray's table of tasks is the job's.
        "enable_task_events": False,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=0
        ),
    }


def agents() -> set[str]:
    """The nodes whose agent was created and not dropped since."""
    return _nodes_with(AGENT_PREFIX)


def relays() -> set[str]:
    """The nodes that have a relay."""
    return _nodes_with(RELAY_PREFIX)


def _nodes_with(prefix: str) -> set[str]:
    return {name.removeprefix(prefix) for name in our_actors(ray) if name.startswith(prefix)}


def drop_relay(node_id: str) -> None:
    """End a node's relay, if it has one."""
    _kill(relay_name(node_id))


def _kill(name: str) -> None:
    if (handle := actor_called(ray, name)) is not None:
        ray.kill(handle, no_restart=True)


def drop(node_id: str, known: Groups | None = None) -> None:
    """Remove a node's relay, agent and group, in this order. ``known`` are the recent ``groups``;
    where the agent may be younger, they are looked up.

    A restartable actor whose group goes first would stay pending for ever, as a demand on the
    autoscaler.
    """
    _kill(relay_name(node_id))
    _kill(agent_name(node_id))
    if (found := (groups() if known is None else known).get(node_id)) is not None:
        remove_placement_group(found)


def groups() -> dict[str, PlacementGroup]:
    """Our groups that are not yet removed, by node id. The table has a row for each node: a caller
    that handles many nodes reads it once.

    Taken from the table of all groups: a lookup by name sees only those of the caller's own
    namespace, and the coordinator's is that of its deployer.
    """
    return {
        entry["name"].removeprefix(GROUP_PREFIX): PlacementGroup(
            PlacementGroupID(bytes.fromhex(entry["placement_group_id"]))
        )
        for entry in placement_group_table().values()
        if entry["name"].startswith(GROUP_PREFIX) and entry["state"] != "REMOVED"
    }

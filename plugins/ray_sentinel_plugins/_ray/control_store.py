"""What Ray's control store (GCS) tells: nodes and their resources, what is asked for, actors.

It is asked directly, as ``ray status`` does: no driver is registered and no job appears. Messages:
``autoscaler.proto`` and ``gcs.proto`` of Ray.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ray_sentinel.api import Skip


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster."""

    address: str
    status: str
    """``RUNNING``, ``IDLE``, ``DRAINING``, ``DEAD``."""
    total: dict[str, float]
    available: dict[str, float]


class ActorState(msgspec.Struct, frozen=True, kw_only=True):
    """An actor. ``cause`` is why it is dead, in Ray's words, or empty."""

    id: str
    name: str
    kind: str
    state: str
    cause: str
    ended: float
    """Unix seconds; 0 while it has not."""
    address: str
    pid: int


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's resources."""

    nodes: tuple[NodeState, ...]
    asked: dict[str, float]
    """By resource: what tasks, actors and placement groups wait for."""


class ControlStore:
    """A connection. Raises Skip where Ray is not installed, or one that we do not know."""

    def __init__(self, address: str, timeout: float) -> None:
        self._timeout = timeout
        try:
            raylet: Any = importlib.import_module("ray._raylet")
            self._autoscaler: Any = importlib.import_module("ray.core.generated.autoscaler_pb2")
            self._gcs: Any = importlib.import_module("ray.core.generated.gcs_pb2")
            self._client = raylet.GcsClient(address=address)
            options = raylet.GcsClientOptions.create(
                address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False
            )
            self._accessor = raylet.GlobalStateAccessor(options)
        except (ImportError, AttributeError, TypeError) as error:
            raise Skip(f"Ray's control store cannot be asked with this Ray: {error}") from None
        self._accessor.connect()

    def resources(self) -> Resources:
        """Nodes and demands. Raises RuntimeError where the store does not answer."""
        answer = self._autoscaler.GetClusterResourceStateReply()
        answer.ParseFromString(self._client.get_cluster_resource_state(timeout_s=self._timeout))
        state = answer.cluster_resource_state
        status = self._autoscaler.NodeStatus.Name
        nodes = tuple(
            NodeState(
                address=node.node_ip_address,
                status=status(node.status),
                total=dict(node.total_resources),
                available=dict(node.available_resources),
            )
            for node in state.node_states
        )
        return Resources(nodes=nodes, asked=demands(state))

    def actors(self) -> list[ActorState]:
        """All actors that the store remembers, dead ones too."""
        states = self._gcs.ActorTableData.ActorState.Name
        found = []
        for data in self._accessor.get_actor_table(None, None):
            actor = self._gcs.ActorTableData.FromString(data)
            found.append(
                ActorState(
                    id=actor.actor_id.hex(),
                    name=actor.name,
                    kind=actor.class_name,
                    state=states(actor.state),
                    cause=cause_of(actor.death_cause),
                    ended=actor.end_time / 1000,
                    address=actor.address.ip_address,
                    pid=actor.pid,
                )
            )
        return found


def demands(state: Any) -> dict[str, float]:
    """The resources that are waited for, of a ``ClusterResourceState``."""
    asked: dict[str, float] = {}
    for request in state.pending_resource_requests:
        _add(asked, request.request.resources_bundle, request.count)
    for gang in state.pending_gang_resource_requests:
        for part in gang.requests:
            _add(asked, part.resources_bundle, 1)
    return asked


def _add(asked: dict[str, float], bundle: Mapping[str, float], count: int) -> None:
    for resource, amount in bundle.items():
        if plain(resource):
            asked[resource] = asked.get(resource, 0.0) + amount * count


def plain(resource: str) -> bool:
    """Not one that Ray makes for itself: a node's own, or a placement group's copies.

    >>> plain("GPU"), plain("node:10.0.0.1"), plain("GPU_group_0_29a1")
    (True, False, False)
    """
    return not resource.startswith(("node:", "bundle_group_")) and "_group_" not in resource


def cause_of(death: Any) -> str:
    """Why an actor is dead, of an ``ActorDeathCause``: how its worker ended (``SYSTEM_ERROR``,
    ``INTENDED_USER_EXIT``, ...), else ``NODE_DIED``, ``RAY_KILL``, ``oom``,
    ``creation_task_failure``, ..."""
    kind = death.WhichOneof("context")
    if kind is None:
        return ""
    if kind == "actor_died_error_context":
        context = death.actor_died_error_context
        if found := re.search(r"Worker exit type: ([A-Z_]+)", context.error_message):
            return found.group(1)
        return str(type(context).Reason.Name(context.reason))
    return str(kind.removesuffix("_context"))

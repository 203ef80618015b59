"""Queries Ray's control store (GCS) about the whole cluster: resources, demands, actors.

It is queried directly, as ``ray status`` does: no driver is registered and no job appears.
Messages: ``autoscaler.proto`` and ``gcs.proto`` of Ray.
"""

from __future__ import annotations

import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ray_sentinel import regex as re
from ray_sentinel.actors.coordinator.ray.actors import MAX_SHARE
from ray_sentinel.model.ray_cluster import DeadActor, RayCluster, RayNodeState

ANSWER_SECONDS = 5.0
"""Seconds that the control store has for one answer."""
MAX_NODES = 2000
"""Most nodes of one answer that are passed on."""
LAST_DEAD = 200
"""Most dead actors that are passed on: those that died last."""

Actors = tuple[dict[str, int], list[DeadActor]]
"""How many actors there are in each state, and the dead ones."""


class ControlStore:
    """A connection. Used by one thread at a time."""

    def __init__(
        self, client: Any, accessor: Any, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._accessor = client, accessor
        self._monotonic = monotonic
        self._actors: Actors | None = None
        self._actors_due = 0.0

    @classmethod
    def of_this_process(cls) -> ControlStore:
        """The connection that this Ray process already has. Raises RuntimeError if there is none,
        ImportError or AttributeError with a Ray that keeps it elsewhere."""
        from ray._private import state, worker

        return cls(worker.global_worker.gcs_client, state.state._connect_and_get_accessor())

    @classmethod
    def at(cls, address: str) -> ControlStore:
        """A connection of its own, for a process that is not one of Ray's. Raises like
        ``of_this_process``, and TypeError."""
        _raylet: Any = importlib.import_module("ray._raylet")
        options = _raylet.GcsClientOptions.create(
            address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False
        )
        accessor = _raylet.GlobalStateAccessor(options)
        accessor.connect()
        return cls(_raylet.GcsClient(address=address), accessor)

    def cluster(self) -> RayCluster:
        """The cluster now. Raises RuntimeError if the store does not answer."""
        from ray.core.generated import autoscaler_pb2, gcs_pb2

        now = time.monotonic()
        answer = autoscaler_pb2.GetClusterResourceStateReply()
        with _answering():
            told = self._client.get_cluster_resource_state(timeout_s=ANSWER_SECONDS)
        answer.ParseFromString(told)
        state = answer.cluster_resource_state
        status = autoscaler_pb2.NodeStatus.Name
        nodes = tuple(
            RayNodeState(
                address=node.node_ip_address,
                status=status(node.status),
                total=_plain(node.total_resources),
                available=_plain(node.available_resources),
            )
            for node in state.node_states[:MAX_NODES]
        )
        states, dead = self._all_actors(gcs_pb2)
        return RayCluster(
            time=now,
            nodes=nodes,
            asked=demands(state),
            actors=states,
            dead=Counter(actor.cause or "UNSPECIFIED" for actor in dead),
            last_dead=tuple(sorted(dead, key=_when)[-LAST_DEAD:]),
        )

    def _all_actors(self, gcs_pb2: Any) -> Actors:
        """All actors, as last requested: a long table is requested more rarely.

        It holds the dead too, up to 100,000 by default. Its filters (job, state) would leave out
        either all of them or none, and nothing tells it to begin with the newest.
        """
        begun = self._monotonic()
        if self._actors is None or begun >= self._actors_due:
            self._actors = _actors(gcs_pb2, self._accessor.get_actor_table(None, None))
            ended = self._monotonic()
            self._actors_due = ended + (ended - begun) / MAX_SHARE
        return self._actors

    def drain(self, node_id: str, why: str) -> str:
        """Stop Ray from placing anything more on a node (id in hex). Returns why that is refused,
        or empty. Raises RuntimeError if the store does not answer."""
        from ray.core.generated import autoscaler_pb2

        # Ray refuses the only other reason, idleness, while something runs on the node.
        reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
        with _answering():
            accepted, refusal = self._client.drain_node(node_id, reason, why, 0)
        return "" if accepted else str(refusal) or "without a reason"


@contextmanager
def _answering() -> Iterator[None]:
    """Ray's own errors, such as RpcError if nobody answers, become RuntimeErrors."""
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        raise RuntimeError(str(error)) from error


def ask(address: str) -> RayCluster:
    """The cluster whose control store is at ``address`` (HOST:PORT), queried once; with its
    ``problem`` if it does not answer."""
    try:
        return ControlStore.at(address).cluster()
    except (RuntimeError, ImportError, AttributeError, TypeError, ValueError) as error:
        return unanswered(error)


def unanswered(error: Exception) -> RayCluster:
    """What is known if the control store could not be queried."""
    first = (str(error).splitlines() or [""])[0]
    why = f"Ray's control store does not answer: {type(error).__name__}: {first}"
    return RayCluster(time=time.monotonic(), problem=why)


def _actors(gcs_pb2: Any, table: Iterable[bytes]) -> Actors:
    states: Counter[str] = Counter()
    dead = []
    for data in table:
        actor = gcs_pb2.ActorTableData.FromString(data)
        state = gcs_pb2.ActorTableData.ActorState.Name(actor.state)
        states[state] += 1
        if state == "DEAD":
            dead.append(
                DeadActor(
                    id=actor.actor_id.hex(),
                    name=actor.name,
                    kind=actor.class_name,
                    cause=cause_of(actor.death_cause),
                    ended=actor.end_time / 1000,
                    address=actor.address.ip_address,
                    pid=actor.pid,
                )
            )
    return states, dead


def _when(actor: DeadActor) -> float:
    return actor.ended


def demands(state: Any) -> dict[str, float]:
    """The resources that something waits for, from a ``ClusterResourceState``."""
    asked: dict[str, float] = {}
    for request in state.pending_resource_requests:
        _add(asked, request.request.resources_bundle, request.count)
    for gang in state.pending_gang_resource_requests:
        for part in gang.requests:
            _add(asked, part.resources_bundle, 1)
    return asked


def _add(asked: dict[str, float], bundle: Mapping[str, float], count: int) -> None:
    for resource, amount in _plain(bundle).items():
        asked[resource] = asked.get(resource, 0.0) + amount * count


def _plain(resources: Mapping[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in resources.items() if plain(name)}


def plain(resource: str) -> bool:
    """Whether a resource is not one that Ray creates for itself: a node's own, or a placement
    group's copies.

    >>> plain("GPU"), plain("node:10.0.0.1"), plain("GPU_group_0_29a1")
    (True, False, False)
    """
    return not resource.startswith(("node:", "bundle_group_")) and "_group_" not in resource


def cause_of(death: Any) -> str:
    """Why an actor is dead, from an ``ActorDeathCause``: how its worker ended (``SYSTEM_ERROR``,
    ``INTENDED_USER_EXIT``, ...), else ``NODE_DIED``, ``RAY_KILL``, ``oom``,
    ``creation_task_failure``, ..."""
    kind = death.WhichOneof("context")
    if kind is None:
        return ""
    if kind == "actor_died_error_context":
        context = death.actor_died_error_context
        if found := re.search(r"Worker exit type: ([A-Z_]+)", context.error_message):
            return str(found.group(1))
        return str(type(context).Reason.Name(context.reason))
    return str(kind.removesuffix("_context"))

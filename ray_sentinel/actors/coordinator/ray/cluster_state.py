"""The whole cluster, as Ray's control store (GCS) knows it: resources, demands, actors.

The head's agent reads it for the collectors that want to know: their own processes are light
because none of them imports ray.

Messages: ``autoscaler.proto`` and ``gcs.proto`` of Ray.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ray_sentinel import regex as re
from ray_sentinel.actors.coordinator.ray.actors import MAX_SHARE
from ray_sentinel.actors.coordinator.ray.replies import MAX_NODES, plain
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.ray_cluster import DeadActor, RayCluster, RayNodeState

LAST_DEAD = 200
"""Most dead actors that are passed on: those that died last."""
MOST_TABLE_BYTES = 512 << 20
"""Most bytes of the table of actors, as for Ray's own clients: Ray keeps 100,000 dead ones."""


class ClusterReader:
    """Reads the cluster from time to time. Used by one thread."""

    def __init__(self, address: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        """``address`` is the control store's, HOST:PORT."""
        self._address, self._monotonic = address, monotonic
        self._store: RayStore | None = None
        self._actors: tuple[dict[str, int], list[DeadActor]] | None = None
        """How many actors there are in each state, and the dead ones."""
        self._actors_due = 0.0

    def read(self) -> RayCluster:
        """The cluster now; if the store does not answer, or says what this version cannot read, its
        ``problem`` says so."""
        if self._store is None:
            self._store = RayStore(self._address, most_bytes=MOST_TABLE_BYTES)
        try:
            return self._cluster(self._store)
        except UnreachableError as error:
            problem = f"Ray's control store does not answer: {error}"
        except (AttributeError, TypeError, ValueError) as error:
            # Another version of Ray may lack what we look for in a reply.
            problem = f"Ray's control store answers otherwise: {type(error).__name__}: {error}"
        self.close()
        return RayCluster(time=time.monotonic(), problem=problem)

    def close(self) -> None:
        """Close the connection; the next ``read`` opens another."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _cluster(self, store: RayStore) -> RayCluster:
        now = time.monotonic()
        reply = store.ask("AutoscalerState", "GetClusterResourceState")
        state = reply.cluster_resource_state
        nodes = tuple(
            RayNodeState(
                address=node.node_ip_address,
                status=node_status(node.status),
                total=_plain(node.total_resources),
                available=_plain(node.available_resources),
            )
            for node in state.node_states[:MAX_NODES]
        )
        states, dead = self._all_actors(store)
        return RayCluster(
            time=now,
            nodes=nodes,
            asked=demands(state),
            actors=states,
            dead=Counter(actor.cause or "UNSPECIFIED" for actor in dead),
            last_dead=tuple(sorted(dead, key=_when)[-LAST_DEAD:]),
        )

    def _all_actors(self, store: RayStore) -> tuple[dict[str, int], list[DeadActor]]:
        """All actors, as last requested: a long table is requested more rarely.

        It holds the dead too, up to 100,000 by default. Its filters (job, state) would leave out
        either all of them or none, and nothing tells it to begin with the newest.
        """
        begun = self._monotonic()
        if self._actors is None or begun >= self._actors_due:
            reply = store.ask("ActorInfo", "GetAllActorInfo")
            self._actors = _actors(reply.actor_table_data)
            ended = self._monotonic()
            self._actors_due = ended + (ended - begun) / MAX_SHARE
        return self._actors


def node_status(number: int) -> str:
    """The name of a node's status: ``RUNNING``, ``DRAINING``, ..."""
    from ray.core.generated import autoscaler_pb2

    return str(autoscaler_pb2.NodeStatus.Name(number))


def _actors(table: Iterable[Any]) -> tuple[dict[str, int], list[DeadActor]]:
    from ray.core.generated import gcs_pb2

    name_of = gcs_pb2.ActorTableData.ActorState.Name
    states: Counter[str] = Counter()
    dead = []
    for actor in table:
        state = name_of(actor.state)
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

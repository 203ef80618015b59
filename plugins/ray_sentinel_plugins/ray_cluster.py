"""The Ray cluster: existing, used and requested resources; nodes and dead actors.

Ray's control store is asked by the head's agent, which is a process of Ray's; this collector is
handed its answer, and is light.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from ray_sentinel.api import (
    Collector,
    Context,
    DeadActor,
    Event,
    Metric,
    NoData,
    RayNodeState,
    Sample,
    Skip,
)
from ray_sentinel_plugins._files import clean, files_of
from ray_sentinel_plugins._raylets import any_raylet, own_raylet

OF_NODE = ("node", "resource")
THERE = Metric("ray_cluster_resource", "gauge", "What a living Ray node has of it.", OF_NODE)
USED = Metric("ray_cluster_resource_used", "gauge", "What is given out of it there.", OF_NODE)
ASKED = Metric(
    "ray_cluster_resource_asked",
    "gauge",
    "What tasks, actors and placement groups wait for.",
    ("resource",),
)
NODES = Metric("ray_cluster_nodes", "gauge", "Ray nodes, by state.", ("state",))
ACTORS = Metric("ray_cluster_actors", "gauge", "Actors, by state.", ("state",))
DEAD = Metric(
    "ray_cluster_dead_actors",
    "gauge",
    "Dead actors that the control store remembers, by cause.",
    ("cause",),
)

ALWAYS = ("CPU", "GPU", "TPU")
MAX_RESOURCES = 32
"""Most kinds of resources that are served: users make up their own."""
OLD_SECONDS = 45.0
"""Seconds after which what the control store said is no longer taken as true."""
INTENDED = frozenset(
    {
        "",
        "RAY_KILL",
        "OUT_OF_SCOPE",
        "REF_DELETED",
        "OWNER_DIED",
        "INTENDED_USER_EXIT",
        "INTENDED_SYSTEM_EXIT",
    }
)
"""Causes of a death that somebody intended, or that only follows from another death."""


class RayCollector(Collector):
    """The cluster that this node is the head of."""

    name = "ray"
    interval: ClassVar[float] = 15.0
    deadline: ClassVar[float] = 10.0
    metrics = (THERE, USED, ASKED, NODES, ACTORS, DEAD)
    wants_cluster: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        if not context.live:
            raise Skip("Ray is asked over the network: a captured tree holds nothing for it")
        self._files = files_of(context, self.log)
        raylet = own_raylet(self._files, context.proc, os.getpid())
        by_hand = raylet is None
        if raylet is None:
            raylet = any_raylet(self._files, context.proc)
        if raylet is None:
            raise Skip("no raylet runs on this machine")
        if not raylet.is_head and not by_hand:
            raise Skip("the head's agent asks for the whole cluster")
        self._known_dead: set[str] | None = None

    def collect(self) -> Iterator[Sample | Event]:
        """All figures. Raises RuntimeError if the control store does not answer."""
        found = self.context.cluster
        if found is None:
            raise NoData("Ray has not been asked yet")
        if found.problem:
            raise RuntimeError(found.problem)
        age = time.monotonic() - found.time
        if age > OLD_SECONDS:
            raise RuntimeError(f"Ray's control store has not answered for {age:.0f} s")
        states = Counter(node.status for node in found.nodes)
        yield from (NODES(number, state) for state, number in sorted(states.items()))
        living = [node for node in found.nodes if node.status != "DEAD"]
        yield from self._resources(living)
        asked = {**dict.fromkeys(_named(living), 0.0), **found.asked}
        for resource in self._bounded(asked):
            yield ASKED(asked[resource], clean(resource))
        yield from (ACTORS(number, state) for state, number in sorted(found.actors.items()))
        yield from (DEAD(number, clean(cause)) for cause, number in sorted(found.dead.items()))
        yield from self._deaths(found.last_dead)

    def _resources(self, living: list[RayNodeState]) -> Iterator[Sample]:
        kinds = self._bounded({name for node in living for name in node.total})
        for node in living:
            for resource in kinds:
                if resource in node.total:
                    labels = clean(node.address), clean(resource)
                    total = node.total[resource]
                    yield THERE(total, *labels)
                    yield USED(total - node.available.get(resource, 0.0), *labels)

    def _bounded(self, resources: dict[str, float] | set[str]) -> list[str]:
        order = sorted(resources, key=lambda name: (name not in ALWAYS, name))
        return list(self._files.bounded(order, MAX_RESOURCES, "the resources of the Ray cluster"))

    def _deaths(self, dead: tuple[DeadActor, ...]) -> Iterator[Event]:
        """Actors that died since the last collection, neither by intent nor because of another
        death."""
        known, self._known_dead = self._known_dead, {actor.id for actor in dead}
        if known is None:
            return
        new = [actor for actor in dead if actor.id not in known and actor.cause not in INTENDED]
        for actor in new:
            what = f"{actor.kind} {actor.name}".strip()
            yield Event(
                time=actor.ended or time.time(),
                kind="ray.actor_died",
                message=f"the actor {what} on {actor.address} is dead: {actor.cause}",
                severity="error",
                attributes={
                    "actor": actor.id,
                    "class": actor.kind,
                    "name": actor.name,
                    "cause": actor.cause,
                    "address": actor.address,
                    "pid": str(actor.pid),
                },
            )


def _named(nodes: list[RayNodeState]) -> set[str]:
    return {name for node in nodes for name in node.total if name in ALWAYS}

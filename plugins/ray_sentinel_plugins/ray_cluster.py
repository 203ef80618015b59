"""The Ray cluster: resources that there are, that are used and asked for; nodes and dead actors.

Asked of the control store, on the head only: the figures are the whole cluster's.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from ray_sentinel.api import Collector, Context, Event, Metric, Sample, Skip
from ray_sentinel_plugins._files import clean, files_of
from ray_sentinel_plugins._ray.control_store import ActorState, ControlStore, NodeState, plain
from ray_sentinel_plugins._ray.raylets import any_raylet, own_raylet

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
MAX_NODES = 2000
MAX_EVENTS = 100
ANSWER_SECONDS = 5.0
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
"""Causes of a death that somebody wanted, or that only follows another's."""


class RayCollector(Collector):
    """The cluster that this node is the head of."""

    name = "ray"
    interval: ClassVar[float] = 15.0
    deadline: ClassVar[float] = 10.0
    metrics = (THERE, USED, ASKED, NODES, ACTORS, DEAD)

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
        self._store = ControlStore(raylet.address, ANSWER_SECONDS)
        self._known_dead: set[str] | None = None

    def collect(self) -> Iterator[Sample | Event]:
        """All figures. Raises RuntimeError where the control store does not answer."""
        found = self._store.resources()
        states = Counter(node.status for node in found.nodes)
        yield from (NODES(number, state) for state, number in sorted(states.items()))
        living = [node for node in found.nodes if node.status != "DEAD"]
        yield from self._resources(living)
        asked = {**dict.fromkeys(_named(living), 0.0), **found.asked}
        for resource in self._bounded(asked):
            yield ASKED(asked[resource], clean(resource))
        actors = self._store.actors()
        counts = Counter(actor.state for actor in actors)
        yield from (ACTORS(number, state) for state, number in sorted(counts.items()))
        dead = [actor for actor in actors if actor.state == "DEAD"]
        causes = Counter(actor.cause or "UNSPECIFIED" for actor in dead)
        yield from (DEAD(number, clean(cause)) for cause, number in sorted(causes.items()))
        yield from self._deaths(dead)

    def _resources(self, living: list[NodeState]) -> Iterator[Sample]:
        kinds = self._bounded({name for node in living for name in node.total if plain(name)})
        for node in self._files.bounded(living, MAX_NODES, "the nodes of the Ray cluster"):
            for resource in kinds:
                if resource in node.total:
                    labels = clean(node.address), clean(resource)
                    total = node.total[resource]
                    yield THERE(total, *labels)
                    yield USED(total - node.available.get(resource, 0.0), *labels)

    def _bounded(self, resources: dict[str, float] | set[str]) -> list[str]:
        order = sorted(resources, key=lambda name: (name not in ALWAYS, name))
        return list(self._files.bounded(order, MAX_RESOURCES, "the resources of the Ray cluster"))

    def _deaths(self, dead: list[ActorState]) -> Iterator[Event]:
        """Actors that died since the last collection, and that nobody wanted dead."""
        known, self._known_dead = self._known_dead, {actor.id for actor in dead}
        if known is None:
            return
        new = [actor for actor in dead if actor.id not in known and actor.cause not in INTENDED]
        for actor in new[:MAX_EVENTS]:
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


def _named(nodes: list[NodeState]) -> set[str]:
    return {name for node in nodes for name in node.total if name in ALWAYS}

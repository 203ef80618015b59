"""The processes of Ray jobs: drivers, actors, and workers that run tasks."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.ray_calls import RayCall, RayCalls
from ray_sentinel.waitgraph.facts import WaitNode, process_node


class JobMember(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a Ray job: a driver, an actor, or a worker that runs a task."""

    process: ProcessId
    job: str
    role: str
    """What processes of its kind have in common: "driver", an actor's class, or "task"."""
    label: str
    """Its name for people, such as "driver", "Rollout 2" or "task preprocess"."""
    actor: str = ""
    """Ray's id of the actor, in hex."""
    inner: bool = False
    """Whether it descends from the process that Ray knows."""


class JobProcesses:
    """The processes of some jobs, by Ray's identifiers."""

    def __init__(self, ray: RayCalls, started: Mapping[tuple[str, int], ProcessId]) -> None:
        """``started`` maps (node id or address, pid) to the process, for those that were found."""
        self._started = started
        self.known: dict[WaitNode, JobMember] = {}
        self._by_actor: dict[str, WaitNode] = {}
        self._by_driver: dict[str, WaitNode] = {}
        for driver in ray.drivers:
            if process := started.get((driver.address, driver.pid)):
                node = self._add(process, driver.job, "driver", "driver")
                self._by_driver[driver.job] = node
        jobs = {driver.job for driver in ray.drivers}
        # One that outlives its job, or is lent by another, belongs to who has called it first. Of
        # replicas of Ray Serve no calls are known: they are looked at for a job that may wait.
        callers = {call.actor: call.job for call in reversed(ray.calls) if call.actor}
        only = ray.drivers[0].job if len(ray.drivers) == 1 else ""
        for actor in ray.actors:
            if process := started.get((actor.node, actor.pid)):
                job = actor.job if actor.job in jobs else callers.get(actor.id, only or actor.job)
                node = self._add(process, job, actor.kind, actor.label, actor.id)
                self._by_actor[actor.id] = node
        made = {creation_id(actor.id): actor for actor in ray.actors}
        for call in ray.calls:
            process = started.get((call.node, call.pid))
            if not process or process_node(process) in self.known:
                continue
            if its_actor := made.get(call.id):  # its constructor runs: Ray has no pid of it yet
                node = self._add(
                    process, its_actor.job, its_actor.kind, its_actor.label, its_actor.id
                )
                self._by_actor[its_actor.id] = node
            else:
                self._add(process, call.job, "task", f"task {call.name}")

    def _add(
        self, process: ProcessId, job: str, role: str, label: str, actor: str = ""
    ) -> WaitNode:
        node = process_node(process)
        self.known[node] = JobMember(process=process, job=job, role=role, label=label, actor=actor)
        return node

    def add_below(self, above: ProcessId, process: ProcessId) -> WaitNode:
        """The node of a process. One that descends from a known process is known by that one's
        name."""
        node, known = process_node(process), self.known.get(process_node(above))
        if known is not None and node not in self.known:
            inner = msgspec.structs.replace(known, process=process, actor="", inner=True)
            if known.role == "driver":
                label = f"process {process.pid} of the driver"
                inner = msgspec.structs.replace(inner, role="process", label=label)
            self.known[node] = inner
        return node

    def driver_of(self, job: str) -> WaitNode | None:
        """The driver of a job, if its process is known."""
        return self._by_driver.get(job)

    def of_actor(self, actor: str) -> WaitNode | None:
        """The process of an actor (Ray's id, in hex), if it is known."""
        return self._by_actor.get(actor)

    def of(self, call: RayCall) -> WaitNode | None:
        """The process that runs a call, or that will run it because it is the call's actor."""
        if call.kind == "driver":
            return self._by_driver.get(call.job)
        if call.actor and call.actor in self._by_actor:
            return self._by_actor[call.actor]
        process = self._started.get((call.node, call.pid))
        return process_node(process) if process else None


def creation_id(actor: str) -> str:
    """The id of the call that creates an actor (``TaskID::ForActorCreationTask``)."""
    return f"{16 * 'f'}{actor}"

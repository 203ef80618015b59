"""The calls of Ray jobs that have not ended, who runs them, and what cannot be placed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec

from ray_sentinel.model.connections import AwaitedAnswer
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.placement import PlacedGroup, Placement
from ray_sentinel.model.runtime_env import NodeEnvironments
from ray_sentinel.model.stacks import StackFact

CallKind = Literal["driver", "task", "actor-creation", "actor-task"]
CallState = Literal["running", "queued", "unplaced", "arguments", "memory", "fetching"]
"""``queued``: it was sent to its actor, which has not begun it. ``unplaced``: no node has been
found for it. ``arguments``: its arguments have not been produced yet. ``memory``: the object store
has no room for its arguments. ``fetching``: these are on their way."""


class RayCall(msgspec.Struct, frozen=True, kw_only=True):
    """A task, the creation of an actor, a call to an actor, or a driver's whole run."""

    id: str
    """Ray's task id, in hex."""
    parent: str
    """The id of the call that made it; for a driver an id that belongs to nothing."""
    job: str
    """Ray's job id, in hex."""
    kind: CallKind
    name: str = ""
    """Its name, such as "Trainer.update" or "preprocess"."""
    actor: str = ""
    """The id of its actor, in hex."""
    state: CallState = "running"
    since: float | None = None
    """Unix time at which it entered that state."""
    made: float | None = None
    """Unix time at which it was submitted."""
    node: str = ""
    """Ray's id, in hex, of the node on which it runs."""
    pid: int = 0
    """The pid of the process in which it runs; 0 where that is not known."""
    worker: str = ""
    """Ray's id, in hex, of the worker to which it was sent, where the pid is not known."""
    needs: dict[str, float] = {}
    """The resources that it requests."""
    selectors: tuple[dict[str, str], ...] = ()
    """The labels that its node must have, in Ray's words ("h100", "!h100", "in(a100,h100)"); if
    there are several selectors, any one will do."""
    environment: str = ""
    """The key of the runtime environment in which it runs; empty where nothing is built for it."""


class RayActor(msgspec.Struct, frozen=True, kw_only=True):
    """An actor that is not dead."""

    id: str
    job: str
    kind: str
    """The name of its class."""
    name: str = ""
    number: int = 0
    """Its place among the actors of its class and job, in the order of their starts."""
    state: str = "ALIVE"
    """Ray's word for its state: ``ALIVE``, ``PENDING_CREATION``, ``DEPENDENCIES_UNREADY``,
    ``RESTARTING``."""
    node: str = ""
    pid: int = 0
    port: int = 0
    """The port at which Ray itself calls it; 0 where that is not known."""
    owner: str = ""
    """The address of the process that made it."""
    worker: str = ""
    """Ray's id, in hex, of the worker to which it was given, while it is started again."""

    @property
    def label(self) -> str:
        """Its name, or its class and number."""
        return self.name or f"{self.kind} {self.number}"


class RayDriver(msgspec.Struct, frozen=True, kw_only=True):
    """The program of a job."""

    job: str
    pid: int
    address: str
    """The address of its node."""
    port: int = 0
    """The port at which Ray itself calls it; 0 where that is not known."""
    command: str = ""
    name: str = ""
    """The job's name for people, such as "train_rl-1"."""
    started: float | None = None
    """Unix time at which it started."""
    ended: bool = False
    """Whether it has ended, or is Ray's own: then there is no process of it to look at."""


class PendingGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A placement group that is not placed."""

    id: str
    name: str = ""
    job: str = ""
    bundles: tuple[dict[str, float], ...] = ()
    selectors: tuple[dict[str, str], ...] = ()
    """The labels that the nodes of its bundles must have; empty where it requests none."""
    strategy: str = ""
    """Ray's word for its strategy: ``PACK``, ``SPREAD``, ``STRICT_PACK``, ``STRICT_SPREAD``."""
    infeasible: bool = False
    """Whether no node could ever hold it."""
    since: float | None = None
    """Unix time since when it has been waiting."""


class EndedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one name that ended successfully."""

    count: int
    longest: float
    """Seconds that the longest one ran."""
    last_at: float = 0.0
    """Unix time at which the last of them ended."""


class FailedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that ended by an exception of its own."""

    name: str
    """Its name, such as "Trainer.update" or "preprocess"."""
    actor: str = ""
    """What its actor is called, if that lives."""
    at: float
    """Unix time at which it failed."""
    error: str = ""
    """The last line of its error."""


class CallWaker(msgspec.Struct, frozen=True, kw_only=True):
    """Whose calls of one method of an actor have ended waits in another one, as ``put`` ends those
    in the ``get`` of a queue."""

    actor: str
    """Ray's id of the actor, in hex."""
    waits: str
    """The name of the calls that wait, such as "Queue.get"."""
    wakes: str
    """The name of the calls that have ended such waits, such as "Queue.put"."""
    caller: str
    """Ray's id of the actor that has made such calls, or of the task or driver."""
    owes: bool = False
    """Whether one call of the waiting name that it has made since has ended: it holds what it got,
    as by the ``acquire`` of a lock. Who gets again and again gives nothing back."""


class RayCalls(msgspec.Struct, frozen=True, kw_only=True):
    """What Ray's control store knew when it was queried."""

    at: float = 0.0
    """Unix time of the query."""
    drivers: tuple[RayDriver, ...] = ()
    actors: tuple[RayActor, ...] = ()
    ended_drivers: tuple[RayDriver, ...] = ()
    """Those of the other jobs that have living actors."""
    outliving: tuple[RayActor, ...] = ()
    """The actors of these jobs, such as the replicas of Ray Serve."""
    calls: tuple[RayCall, ...] = ()
    groups: tuple[PendingGroup, ...] = ()
    placed: tuple[PlacedGroup, ...] = ()
    """The placed groups in which a call waits for room."""
    ended: dict[str, EndedCalls] = {}
    """The ended calls by name, where they were requested."""
    changes: tuple[int, ...] = ()
    """The last whole Unix seconds in which any of these calls began or ended, in ascending order;
    also only where they were requested."""
    failed: tuple[FailedCall, ...] = ()
    """The last calls that failed by themselves, the oldest first; also only where they were
    requested."""
    wakers: tuple[CallWaker, ...] = ()
    """Who has ended waits in calls that are running; also only where they were requested."""
    free_on: dict[str, dict[str, float]] = {}
    """The unused resources of each node, by node id."""
    placement: Placement | None = None
    """The answer about what has not been placed for long, where there is such and it was requested.
    """
    environments: tuple[NodeEnvironments, ...] = ()
    """The nodes that build environments, or do not answer, where a call waits for one."""
    left_off: int = 0
    """Unfinished calls beyond those in ``calls``."""
    problem: str = ""
    """What could not be queried, and why."""


def of_job(known: RayCalls, job: str, serving: Collection[str] = ()) -> RayCalls:
    """The part that concerns one job: of other jobs, only the actors that it has called, and those
    that are ``serving`` (their ids), which it may have called without Ray's knowledge."""
    calls = tuple(call for call in known.calls if call.job == job)
    called = {*serving, *(call.actor for call in calls)}
    return msgspec.structs.replace(
        known,
        drivers=tuple(driver for driver in known.drivers if driver.job == job),
        actors=tuple(one for one in known.actors if one.job == job or one.id in called),
        calls=calls,
        groups=tuple(group for group in known.groups if group.job == job),
    )


def going_on(known: RayCalls, jobs: Collection[str]) -> RayCalls:
    """The table in which some jobs count that go on although their drivers have ended."""
    mine = (driver for driver in known.ended_drivers if driver.job in jobs)
    there = {driver.job: driver for driver in mine}
    return msgspec.structs.replace(
        known,
        drivers=(*known.drivers, *there.values()),
        actors=(*known.actors, *(one for one in known.outliving if one.job in there)),
        ended_drivers=tuple(one for one in known.ended_drivers if one.job not in there),
        outliving=tuple(one for one in known.outliving if one.job not in there),
    )


class LookedAt(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a job, and where it is according to Ray."""

    node: str
    """Ray's node id, in hex."""
    address: str
    process: ProcessId


class RayLook(msgspec.Struct, frozen=True, kw_only=True):
    """One look at jobs: the control store's answer, and rounds of their processes' stacks."""

    calls: RayCalls
    processes: tuple[LookedAt, ...] = ()
    rounds: tuple[tuple[StackFact, ...], ...] = ()
    """Rounds of stacks, oldest first."""
    answers: tuple[AwaitedAnswer, ...] = ()
    """The answers that the processes await from each other over connections of their own."""
    serving: tuple[ProcessId, ...] = ()
    """Drivers that listen for requests from outside the job."""
    notes: tuple[str, ...] = ()
    """What could not be seen, and why."""

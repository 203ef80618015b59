"""The calls of Ray jobs that have not ended, who runs them, and what cannot be placed."""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.connections import AwaitedAnswer
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.placement import PlacedGroup, Placement
from ray_sentinel.model.runtime_env import NodeEnvironments
from ray_sentinel.model.stacks import StackFact

CallKind = Literal["driver", "task", "actor-creation", "actor-task"]
CallState = Literal["running", "queued", "unplaced", "arguments", "memory", "fetching"]
"""``queued``: sent to its actor, which has not begun it. ``unplaced``: no node has been found for
it. ``arguments``: what it was given is not made yet. ``memory``: the object store has no room for
its arguments. ``fetching``: they are on their way."""


class RayCall(msgspec.Struct, frozen=True, kw_only=True):
    """A task, the creation of an actor, a call to an actor, or a driver's whole run."""

    id: str
    """Ray's task id, in hex."""
    parent: str
    """The id of the call that made it; of a driver, of nobody."""
    job: str
    """Ray's job id, in hex."""
    kind: CallKind
    name: str = ""
    """"Trainer.update", "preprocess"."""
    actor: str = ""
    """The id of its actor, in hex."""
    state: CallState = "running"
    since: float | None = None
    """Unix time at which it came into that state."""
    made: float | None = None
    """Unix time at which it was submitted."""
    node: str = ""
    """Ray's node id, in hex, of where it runs."""
    pid: int = 0
    """Of where it runs; 0 where that is not known."""
    worker: str = ""
    """Ray's worker id, in hex, of where it was sent, where the pid is not known."""
    needs: dict[str, float] = {}
    """The resources that it asks for."""
    selectors: tuple[dict[str, str], ...] = ()
    """The labels that its node must have, in Ray's words ("h100", "!h100", "in(a100,h100)"); of
    several selectors any will do."""
    environment: str = ""
    """The key of the runtime environment that it runs in; empty where nothing is built for it."""


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
    """Ray's word: ``ALIVE``, ``PENDING_CREATION``, ``DEPENDENCIES_UNREADY``, ``RESTARTING``."""
    node: str = ""
    pid: int = 0
    port: int = 0
    """At which Ray itself calls it; 0 where that is not known."""
    owner: str = ""
    """The address of the process that made it."""

    @property
    def label(self) -> str:
        """Its name, or its class and number."""
        return self.name or f"{self.kind} {self.number}"


class RayDriver(msgspec.Struct, frozen=True, kw_only=True):
    """The program of a job."""

    job: str
    pid: int
    address: str
    """Of its node."""
    port: int = 0
    """As of ``RayActor``."""
    command: str = ""
    name: str = ""
    """Of the job, as people know it: "train_rl-1"."""
    started: float | None = None
    """Unix time."""


class PendingGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A placement group that is not placed."""

    id: str
    name: str = ""
    job: str = ""
    bundles: tuple[dict[str, float], ...] = ()
    selectors: tuple[dict[str, str], ...] = ()
    """The labels that the nodes of its bundles must have; empty where it asks for none."""
    strategy: str = ""
    """Ray's word: ``PACK``, ``SPREAD``, ``STRICT_PACK``, ``STRICT_SPREAD``."""
    infeasible: bool = False
    """No node could ever hold it."""
    since: float | None = None
    """Unix time."""


class EndedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of one name that ended successfully."""

    count: int
    longest: float
    """Seconds that one of them ran."""
    last_at: float = 0.0
    """Unix time at which the last of them ended."""


class RayCalls(msgspec.Struct, frozen=True, kw_only=True):
    """What Ray's control store knew when it was queried."""

    at: float = 0.0
    """Unix time."""
    drivers: tuple[RayDriver, ...] = ()
    actors: tuple[RayActor, ...] = ()
    calls: tuple[RayCall, ...] = ()
    groups: tuple[PendingGroup, ...] = ()
    placed: tuple[PlacedGroup, ...] = ()
    """The placed groups in which a call waits for room."""
    ended: dict[str, EndedCalls] = {}
    """By name, where they were asked for."""
    changes: tuple[int, ...] = ()
    """Then also the last whole Unix seconds in which any of those began or ended, rising."""
    free_on: dict[str, dict[str, float]] = {}
    """By node id: the resources that nobody uses there."""
    placement: Placement | None = None
    """Where something has not been placed for long, and it was asked for."""
    environments: tuple[NodeEnvironments, ...] = ()
    """Of the nodes that build some, or do not answer, where a call waits for one."""
    left_off: int = 0
    """Unfinished calls beyond those in ``calls``."""
    problem: str = ""
    """What could not be asked, and why."""


def of_job(known: RayCalls, job: str) -> RayCalls:
    """The part that concerns one job."""
    return msgspec.structs.replace(
        known,
        drivers=tuple(driver for driver in known.drivers if driver.job == job),
        actors=tuple(actor for actor in known.actors if actor.job == job),
        calls=tuple(call for call in known.calls if call.job == job),
        groups=tuple(group for group in known.groups if group.job == job),
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
    """The oldest first."""
    answers: tuple[AwaitedAnswer, ...] = ()
    """That they await of each other over connections of their own."""
    serving: tuple[ProcessId, ...] = ()
    """Drivers that listen for requests from outside of the job."""
    notes: tuple[str, ...] = ()
    """What could not be seen, and why."""

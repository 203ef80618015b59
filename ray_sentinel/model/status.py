"""The data that ``status`` prints, for the CLI, the page and ``Sentinel.status()``."""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.alert import Alert
from ray_sentinel.model.metrics import CollectorStatus
from ray_sentinel.model.notebook import NotebookRecord
from ray_sentinel.model.straggler import StragglerStatus

State = Literal["healthy", "slow", "stalled", "hung", "unknown"]


class RankStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One rank's line."""

    rank: int
    host: str
    pid: int
    step: int | None
    state: str
    """One of "running", "waiting", "stopped", "gil-held", "blocked", "exited", "silent", ..."""
    phase: str = ""
    step_age_seconds: float | None = None
    attached: bool = False
    role: str = ""


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A driver or an actor of a Ray job that is not a rank."""

    label: str
    """Its name: "driver", the actor's name, or its class and number, such as "Rollout 2"."""
    role: str
    """Either "driver" or the actor's class."""
    host: str
    pid: int
    method: str = ""
    """What it runs; empty between two calls."""
    seconds: float | None = None
    """Seconds for which it has been running that."""
    usual_seconds: float | None = None
    """Seconds that this usually takes; None where that was not learned."""
    state: str = ""
    """One of "running", "waiting", "idle", "starting", "silent", ..."""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One job's lines."""

    job: str
    attempt: int
    step: int | None
    phase: str
    step_age_seconds: float | None
    ranks: tuple[RankStatus, ...] = ()
    state: State = "healthy"
    world_size: int | None = None
    step_seconds: float | None = None
    """Usual (median) step time in seconds."""
    expected: str = ""
    """What is expected next, such as "checkpoint for 20 s, usually up to 40 s"."""
    ended: bool = False
    alerts: tuple[Alert, ...] = ()
    """What telemetry shows to be wrong with the job, its hosts and its devices now."""
    requests: str = ""
    """The requests of an inference engine that reports them, such as "3 running, 12 waiting
    requests"."""
    straggler: StragglerStatus | None = None
    """Who slows it down; None where nobody has looked recently."""
    ray_job: str = ""
    """Ray's id of the job that it belongs to, in hex; empty where that is not known."""
    members: tuple[MemberStatus, ...] = ()
    """The members of a job of actors that are not ranks."""
    waits: str = ""
    """Who waits for whom in it, as one sentence; empty where nobody has looked, or nobody waits."""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One watched node's line."""

    id: str
    host: str
    address: str
    metrics_url: str = ""
    snapshot_age_seconds: float | None = None
    is_head: bool = False
    collectors: tuple[CollectorStatus, ...] = ()
    memory_bytes: int | None = None
    """Resident memory of its agent; None where that does not tell it."""


class CoordinatorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the coordinator does, what it uses, and its limits."""

    reports_per_second: float = 0.0
    """Agents' reports per second that were accepted, over the last seconds."""
    reports_due_per_second: float = 0.0
    """Reports per second that all agents make while nothing happens on their nodes."""
    relays: int = 0
    """How many actors pass reports on; in a small cluster there are none."""
    relays_wanted: int = 0
    """How many relays there should be."""
    cycle_seconds: float | None = None
    """Wall time of the engine's last cycle, in seconds."""
    memory_bytes: int = 0
    """Resident memory of the coordinator."""
    memory_limit_bytes: int = 0
    series_bytes: int = 0
    """How much of it the nodes' series take."""
    series_limit_bytes: int = 0
    log_waiting_bytes: int = 0
    """How much of it the events take that wait for the disk."""
    log_waiting_limit_bytes: int = 0
    log_missing: int = 0
    """How many events the disk did not take in time."""
    shed: dict[str, int] = {}
    """How often each of "history", "series", "pulse" and "incidents" was reduced, because too much
    memory was used."""


class Unwatched(msgspec.Struct, frozen=True, kw_only=True):
    """A node without an agent, and why."""

    id: str
    host: str
    reason: str


class Status(NotebookRecord, msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer."""

    state: State
    verdict: str
    """The verdict as one sentence."""
    nodes: tuple[NodeStatus, ...] = ()
    unwatched: tuple[Unwatched, ...] = ()
    jobs: tuple[JobStatus, ...] = ()
    time: float = 0.0
    log_dir: str = ""
    page: str = ""
    """URL of the coordinator's page on its machine; empty where it is not served."""
    prometheus: str = ""
    """URL of the job's Prometheus on the coordinator's machine; empty where none runs."""
    history: str = ""
    """File of the embedded history on the coordinator's machine; empty where it has none."""
    notes: tuple[str, ...] = ()
    """What people should know, such as a taken port, or a folder that will not outlive the pod."""
    coordinator: CoordinatorStatus | None = None
    """The coordinator's own status; None from one of an older version."""
    version: int = 1

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
    """"running", "waiting", "stopped", "gil-held", "blocked", "exited", "silent", ..."""
    phase: str = ""
    step_age_seconds: float | None = None
    attached: bool = False
    role: str = ""


class MemberStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A driver or an actor of a Ray job that is not a rank."""

    label: str
    """"driver", the actor's name, or its class and number: "Rollout 2"."""
    role: str
    """"driver" or the actor's class."""
    host: str
    pid: int
    method: str = ""
    """What it runs; empty between two calls."""
    seconds: float | None = None
    """How long it has run that."""
    usual_seconds: float | None = None
    """How long that usually takes; None where it was not learned."""
    state: str = ""
    """"running", "waiting", "idle", "starting", "silent", ..."""


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
    """Usual (median) step time."""
    expected: str = ""
    """What is expected next: "checkpoint for 20 s, usually up to 40 s"."""
    ended: bool = False
    alerts: tuple[Alert, ...] = ()
    """What telemetry shows to be wrong with the job, its hosts and its devices now."""
    requests: str = ""
    """Of an inference engine that tells: "3 running, 12 waiting requests"."""
    straggler: StragglerStatus | None = None
    """None where nobody has looked lately."""
    ray_job: str = ""
    """Ray's id of the job that it belongs to, in hex; empty where that is not known."""
    members: tuple[MemberStatus, ...] = ()
    """Of a job of actors: those that are no ranks."""
    waits: str = ""
    """Who waits for whom in it, as one sentence; empty where nobody has looked or nobody waits."""


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
    """Reports of agents that were taken, of the last seconds."""
    reports_due_per_second: float = 0.0
    """Which all agents make where nothing happens on their nodes."""
    relays: int = 0
    """Actors that hand reports on; in a small cluster there are none."""
    relays_wanted: int = 0
    """How many there are to be."""
    cycle_seconds: float | None = None
    """Wall time of the engine's last cycle."""
    memory_bytes: int = 0
    """Resident memory."""
    memory_limit_bytes: int = 0
    series_bytes: int = 0
    """Of it: what nodes have told of themselves."""
    series_limit_bytes: int = 0
    log_waiting_bytes: int = 0
    """Of it: events that wait for the disk."""
    log_waiting_limit_bytes: int = 0
    log_missing: int = 0
    """Events that the disk did not take in time."""
    shed: dict[str, int] = {}
    """How often "history", "series", "pulse" and "incidents" had to do with less, because more
    memory was taken than may be."""


class Unwatched(msgspec.Struct, frozen=True, kw_only=True):
    """A node without an agent, and why."""

    id: str
    host: str
    reason: str


class Status(NotebookRecord, msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer."""

    state: State
    verdict: str
    """One sentence."""
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
    """What people should know: a taken port, a folder that will not outlive the pod."""
    coordinator: CoordinatorStatus | None = None
    """None of one of an older version."""
    version: int = 1

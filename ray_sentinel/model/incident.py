"""Findings, evidence, verdicts and incidents."""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.notebook import NotebookRecord
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.straggler import StragglerStatus

Severity = Literal["info", "warning", "critical"]

FaultKind = Literal[
    "rank-dead",
    "oom-killed",
    "rank-stopped",
    "gil-held",
    "kernel-blocked",
    "cpu-spin",
    "input-wait",
    "storage-wait",
    "lock-deadlock",
    "collective-mismatch",
    "device-stuck",
    "device-lost",
    "node-lost",
    "network",
    "startup-stuck",
    "slow",
    "stall",
    "host-stuck",
    "actor-stuck",
    "actor-dead",
    "driver-stuck",
    "driver-dead",
    "call-deadlock",
    "pending",
    "object-store",
    "starved",
    "paused",
    "sentinel",
    "asked",
    "unknown",
]
"""``host-stuck``: the rank's own code stands still outside any collective, for a reason that no
frame table names. ``stall``: all wait for something outside; nobody is a culprit. ``actor-stuck``
and ``driver-stuck``: the others wait for this process of a Ray job, which is no rank.
``call-deadlock``: Ray calls wait for each other in a circle. ``pending``: what they wait for cannot
be placed. ``object-store``: it has no room."""

IncidentState = Literal["suspected", "confirmed", "captured", "explained", "resolved", "dismissed"]


class ChainLink(msgspec.Struct, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """One step from a waiter to what it waits for; in JSON ``from`` and ``to``."""

    start: str
    end: str
    how: str
    since: float | None = None
    """Unix time since when it has waited; None if unknown."""
    witness: str = ""


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the job up. ``rank`` is None for a node, a device, or a process that is not a
    rank."""

    rank: int | None
    host: str
    pid: int | None
    reason: str
    gpu: str = ""
    role: str = ""
    """For a member of a Ray job, the class of an actor, "driver", or "task"."""
    actor: str = ""
    """The actor's name, or otherwise class and number, such as "Rollout 2"."""
    method: str = ""
    """What it runs, such as "Rollout.generate"."""

    @property
    def label(self) -> str:
        """The culprit for people: "rank 3", "driver", "Rollout 2"; empty for a node or a device."""
        return f"rank {self.rank}" if self.rank is not None else self.actor or self.role


class EvidenceItem(msgspec.Struct, frozen=True, kw_only=True):
    """One line of evidence, for or against a process."""

    source: str
    """Where it comes from: "process", "stacks", "flight-recorder", "progress", "exit",
    "kernel-log", "node", ..."""
    text: str
    rank: int | None = None
    weight: float = 0.0
    """How much it counts against the rank; a negative weight speaks for the rank, and 0 is context.
    """
    at: float | None = None
    proof: tuple[str, ...] = ()
    """By what the source names the rank, such as "elsewhere" or "no-dump", then what weakens it;
    empty where the source has one kind of proof only."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The ranked culprits, the kind of fault, and the confidence (0..1)."""

    kind: FaultKind
    summary: str
    culprits: tuple[Culprit, ...] = ()
    confidence: float = 0.0
    evidence: tuple[EvidenceItem, ...] = ()
    chain: tuple[ChainLink, ...] = ()
    """The waits from a waiting process to the culprit, or to where knowledge ends; empty where they
    are not known."""
    waiting: tuple[str, ...] = ()
    """For each innocent rank or class of ranks, what it waits for."""
    next_steps: tuple[str, ...] = ()
    stacks: tuple[StackFact, ...] = ()
    """The culprits' stacks, then one stack of each class of waiters."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of a rule. The engine decides what follows from it."""

    rule: str
    job: str
    attempt: int
    kind: FaultKind
    severity: Severity
    summary: str
    suspects: tuple[RankId, ...] = ()
    evidence: tuple[EvidenceItem, ...] = ()
    hard: bool = False
    """Whether it is proof enough to name the suspects without waiting for silence."""
    settled: bool = False
    """Whether a hard finding has already lasted for long enough when it is made."""
    host: str = ""
    """The node's host, for findings about a node."""
    verdict: Verdict | None = None
    """The verdict to be given, where the rule knows it completely."""

    @property
    def key(self) -> tuple[str, int, str]:
        """Equal for the same finding when it is made again: job, attempt and rule."""
        return self.job, self.attempt, self.rule


class Transition(msgspec.Struct, frozen=True):
    """One change of an incident's state."""

    at: float
    state: IncidentState
    why: str = ""


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """A process whose last output is wanted: a rank, a driver or another actor."""

    process: ProcessId
    node: str
    """Ray's node id, in hex."""
    rank: int | None = None
    label: str = ""
    """The name of a process that is no rank, such as "driver" or "Rollout 2"."""


def writer_of(rank: Rank) -> Writer:
    """A rank as a process whose output is wanted."""
    return Writer(process=rank.process, node=rank.node, rank=rank.id.rank)


class RankLog(msgspec.Struct, frozen=True, kw_only=True):
    """The last lines that one rank, actor or driver wrote to its standard output and error, in the
    incident's bundle."""

    rank: int | None
    host: str
    pid: int
    label: str = ""
    """The same as ``Writer.label``."""
    file: str = ""
    """Path of the file in the bundle; empty where there is none."""
    sources: tuple[str, ...] = ()
    """Where it was read, such as ``stdout and stderr: /path (with rank 1)``."""
    missing: str = ""
    """Why nothing, or only a part of it, could be read."""
    ended: bool = False
    """Whether the process had ended when it was read."""
    shared: bool = False
    """Whether other ranks wrote to the same file."""
    telling: str = ""
    """The line that says what ended the process: an exception, a crash."""
    lines: tuple[str, ...] = ()
    """The last lines of a culprit, which a report shows."""

    @property
    def who(self) -> str:
        """The writer for people: "rank 3" or "Rollout 2"."""
        return f"rank {self.rank}" if self.rank is not None else self.label


class RankOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A process's last lines on their way to the bundle, masked; ``log`` names no file yet."""

    log: RankLog
    data: bytes = b""


class Milestone(msgspec.Struct, frozen=True):
    """One step in the timeline of an incident that does not change its state."""

    at: float
    what: str
    """What was seen or done: "progress", "stacks", "flight recorder", "NCCL RAS" or "notified"."""
    text: str


def notified(at: float, state: str) -> Milestone:
    """The milestone: all receivers have received the notice of the incident's state."""
    return Milestone(at, "notified", f"as {state}")


class Incident(NotebookRecord, msgspec.Struct, frozen=True, kw_only=True):
    """One thing that went wrong, from the first suspicion to its end."""

    id: str
    job: str
    attempt: int
    kind: FaultKind
    severity: Severity
    state: IncidentState
    summary: str
    rule: str
    suspected_at: float
    last_progress: float | None = None
    """When the job last moved before the incident."""
    job_since: float | None = None
    """When the job's attempt was first seen."""
    confirmed_at: float | None = None
    resolved_at: float | None = None
    suspects: tuple[RankId, ...] = ()
    verdict: Verdict | None = None
    bundle: str = ""
    history: tuple[Transition, ...] = ()
    processes: dict[str, ProcessId] = {}
    """The suspects' processes by the number of the rank, as text."""
    straggler: StragglerStatus | None = None
    """Who slowed the job down before it, where that was examined recently."""
    logs: tuple[RankLog, ...] = ()
    """What the ranks concerned wrote last, once that has been captured."""
    milestones: tuple[Milestone, ...] = ()
    """What was seen and done between the changes of its state, oldest first."""
    clock_shift: float = 0.0
    """Seconds that were added to its times, because the coordinator's wall clock was set by so much
    between its start and this writing."""
    version: int = 1

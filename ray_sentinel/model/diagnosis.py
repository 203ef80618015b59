"""The result of a diagnosis."""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.notebook import NotebookRecord

Outcome = Literal["found", "healthy", "not-this", "unknown"]
Role = Literal["root", "intermediate", "symptom", "context"]


class CauseLocation(msgspec.Struct, frozen=True, kw_only=True):
    """The host, GPU or port of the cause. Text that does not apply is empty."""

    host: str
    gpu: str = ""
    device: str = ""
    port: str = ""
    reason: str = ""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure that the diagnosis is based on, and the query that returns it."""

    text: str
    metric: str = ""
    promql: str = ""
    host: str = ""
    gpu: str = ""
    value: float | None = None
    unit: str = ""
    at: float | None = None
    """Unix time of the figure in seconds; None where it has no time of its own."""
    source: str = "series"
    """Where it comes from: "series", "log" or "events"."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One member of the causal chain. Times are Unix seconds."""

    role: Role
    text: str
    at: float | None = None
    uncertainty: float | None = None
    """Seconds by which ``at`` may be off."""
    host: str = ""
    gpu: str = ""
    metric: str = ""
    promql: str = ""


class FigureTable(msgspec.Struct, frozen=True, kw_only=True):
    """Figures for people."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    promql: str = ""


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A plot of one quantity's series around the anomaly. NaN is a gap."""

    title: str
    unit: str
    promql: str
    times: tuple[float, ...]
    series: tuple[tuple[str, tuple[float, ...]], ...]
    marks: tuple[tuple[float, str], ...] = ()


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one playbook, or of all of them together."""

    analysis: str = ""
    """"hang", "heartbeat", "oom", "hardware", "gpu-health", "network-health",
    "training-stability", "checkpoint-fs-error" or "health-check"."""
    playbook: str = ""
    """This and ``analysis`` are written by whoever runs the playbook, which knows its name."""
    outcome: Outcome
    cause: str
    """The kind of root cause in one word, such as "rdma-link"; "none" where all is well."""
    root_cause: str
    confidence: float
    """From 0 to 1."""
    weight: float = 0.0
    """How well this playbook explains the job; the greatest one is reported first."""
    window: tuple[float, float] = (0.0, 0.0)
    """The time that it is about, in Unix seconds; a playbook that leaves it out speaks of the whole
    job."""
    onset: float | None = None
    ended_job: bool = False
    """Whether the cause stopped the job."""
    passed: bool = False
    """Whether the cause was over, and the job had recovered, before the end."""
    culprits: tuple[CauseLocation, ...] = ()
    chain: tuple[Link, ...] = ()
    evidence: tuple[Figure, ...] = ()
    tables: tuple[FigureTable, ...] = ()
    plots: tuple[Plot, ...] = ()
    anomalies: tuple[str, ...] = ()
    logs: tuple[Figure, ...] = ()
    next_steps: tuple[str, ...] = ()
    administrator: str = ""
    """A report for the cluster's administrator, in Markdown."""


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """What the source contains, before any verdict."""

    source: str
    hosts: tuple[str, ...] = ()
    families: dict[str, int] = {}
    """Number of metric families by group."""
    other_families: tuple[str, ...] = ()
    span: tuple[float, float] | None = None
    interval: float = 0.0
    """Seconds between two samples."""
    cell: float = 0.0
    """Length of one cell of the analysis in seconds."""
    gpus: int = 0
    steps: tuple[float, float] | None = None
    gaps: tuple[tuple[float, float], ...] = ()
    """Ranges in which no host has any sample."""
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """What cannot be trusted, and why."""
    right_job: str = ""
    """The outcome of the check of steps and losses against the job's log."""


class DiagnosisReport(NotebookRecord, msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one run of ``diagnose`` found."""

    inventory: Inventory
    diagnosis: Diagnosis
    others: tuple[Diagnosis, ...] = ()
    triage: str = ""
    """What the log side says, and whether the series confirm it."""
    seconds: float = 0.0
    source_seconds: float = 0.0
    """Part of ``seconds`` spent waiting for the source's answers."""

"""What a job's logs show: the class of failure, its first cause, the culprits and the next
steps."""

from __future__ import annotations

from typing import Literal

import msgspec

FailureClass = Literal[
    "hang",
    "heartbeat-timeout",
    "nccl-timeout",
    "nccl-init",
    "oom-host",
    "oom-gpu",
    "xla-compile",
    "python-exception",
    "signal-kill",
    "actor-fail",
    "node-fail",
    "gpu-lost",
    "checkpoint-fs-error",
    "checkpoint-load",
    "port-in-use",
    "rendezvous",
    "etcd",
    "missing-env",
    "topology-change",
    "data-loading",
    "storage",
    "config",
    "nan-loss",
    "head-lost",
    "link-down",
    "transport-lost",
    "startup-stuck",
    "illegal-memory-access",
    "hub-unreachable",
    "engine-stalled",
    "cancelled",
    "preempted",
    "throughput-degradation",
    "soft-success",
    "unknown-death",
    "running",
    "completed",
]
"""``transport-lost``: a connection broke in mid-training, and no process says why it ended.
``startup-stuck``: lines go on, but a phase of the start-up lasts far longer than its limit.
``unknown-death``: the logs end without giving a reason. ``soft-success``: training finished,
and only the teardown failed."""

Outcome = Literal["running", "completed", "failed", "stopped", "unknown"]


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a log. ``line`` counts from 1; None if the file was too large to count."""

    file: str
    line: int | None
    text: str
    """The line's text: cut off if long, without terminal escapes, with secrets masked."""
    note: str = ""
    """Why it is shown, such as "first cause" or "echo"."""
    time: float | None = None


class LogCulprit(msgspec.Struct, frozen=True, kw_only=True):
    """Who failed first, as far as the logs show."""

    rank: int | None = None
    node: str = ""
    """The node's host name or address."""
    pid: int | None = None
    ip: str = ""
    actor: str = ""
    """The Ray actor's class."""
    gpu: str = ""
    reason: str = ""


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    """Errors that follow from the first cause, or that the job survived."""

    kind: str
    """A failure class, "harmless" or "survived"."""
    signature: str
    count: int
    first: LogLine
    ranks: tuple[int, ...] = ()


class StepProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far training came. Facts that are absent are None."""

    first_step: int | None = None
    last_step: int | None = None
    total_steps: int | None = None
    step_seconds: float | None = None
    """Median duration in seconds of the steps that were seen."""
    last_step_at: float | None = None
    expected_step: int | None = None
    """Where training would be at the last sign of life, had it gone on at its usual pace."""
    loss: float | None = None
    checkpoint_step: int | None = None
    """The last checkpoint known to be complete."""
    lost_steps: int | None = None
    lost_seconds: float | None = None
    """Seconds since that checkpoint: what a restart has to do again."""
    tokens_per_second: float | None = None


class LogException(msgspec.Struct, frozen=True, kw_only=True):
    """A Python exception: its type, message, and the last frame of the traceback."""

    kind: str
    message: str = ""
    frame: str = ""
    """The last frame as ``file:line function``."""


class Triage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``ray-sentinel triage``."""

    kind: FailureClass = msgspec.field(name="class")
    outcome: Outcome
    summary: str
    confidence: float
    """From 0 to 1."""
    signature: str = ""
    """The entry of the catalogue on which the class rests."""
    cause: str = ""
    culprits: tuple[LogCulprit, ...] = ()
    evidence: tuple[LogLine, ...] = ()
    next_steps: tuple[str, ...] = ()
    playbook: str = ""
    """The value for ``ray-sentinel diagnose --playbook``; empty where none fits."""
    first_error_at: float | None = None
    first_error_rank: int | None = None
    underlying: str = ""
    """How the job ended, if it hung or its loss was no number, and somebody ended it. ``nan-loss``
    for a job that ended of something else after its loss or norm was no longer a number."""
    exception: LogException | None = None
    phase: str = ""
    phase_seconds: float | None = None
    """Seconds from the first sign of the phase to the last dated line."""
    progress: StepProgress = StepProgress()
    echoes: tuple[Echo, ...] = ()
    facts: dict[str, str] = {}
    """Facts from the header and the configuration lines: nodes, world size, arguments."""
    started_at: float | None = None
    ended_at: float | None = None
    files: int = 0
    bytes: int = 0
    sampled: tuple[str, ...] = ()
    """Files that were read only in part, and how."""
    problems: tuple[str, ...] = ()
    """Files that could not be read, and the remedy."""

"""What is known about one log file after it has been read."""

from __future__ import annotations

import msgspec

from ray_sentinel.evidence.logs.errors.exits import ProcessExit
from ray_sentinel.evidence.logs.errors.signatures import Signature
from ray_sentinel.evidence.logs.errors.watchdog import RankWork
from ray_sentinel.evidence.logs.lines.chunk import When
from ray_sentinel.evidence.logs.lines.lines import NOBODY, Origin
from ray_sentinel.evidence.logs.training.phases import PhaseSeen
from ray_sentinel.evidence.logs.training.steps import ReportedStep
from ray_sentinel.model.triage import LogException


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file and what its name shows."""

    label: str
    """The file's path as it is shown."""
    kind: str = "log"
    """The kind of file: "log", "worker", "driver", "raylet", "gcs", "monitor", "ray", "rank",
    "nccl", "kernel", "slurm" or "agent"."""
    origin: Origin = NOBODY
    """The process whose lines these are, where the file's name shows it."""
    stderr: bool = False
    modified: float | None = None
    size: int = 0


class Hit(When, frozen=True, kw_only=True):
    """A line (or block) that matches a signature."""

    file: int
    offset: int
    """The offset of the line's first byte in the file."""
    text: str
    signature: Signature
    groups: dict[str, str] = msgspec.field(default_factory=dict)
    origin: Origin = NOBODY
    streamed: bool = False
    """The line has Ray's prefix: another process printed it, and it came here late."""
    repeated: int = 1
    exception: LogException | None = None
    exit: ProcessExit | None = None


class StepSeen(When, frozen=True, kw_only=True):
    """A step line found in a file."""

    step: ReportedStep
    offset: int
    rank: int | None = None
    pid: int | None = None
    streamed: bool = False
    """The line has Ray's prefix: a process other than the file's own printed it."""


class FileFacts(msgspec.Struct, kw_only=True):
    """Everything the analysis needs about one file; bounded however large the file is."""

    file: LogFile
    hits: list[Hit] = []
    counts: dict[str, int] = {}
    """Signature id → how often it was seen."""
    steps: list[StepSeen] = []
    phases: list[PhaseSeen] = []
    works: list[RankWork] = []
    processes: list[Origin] = []
    """Processes whose rank and pid were named together."""
    facts: dict[str, str] = {}
    first_time: float | None = None
    last_time: float | None = None
    last_times: tuple[float, ...] = ()
    """The times of the last few dated lines, newest first."""
    last_line: str = ""
    last_offset: int = 0
    sampled: str = ""
    problem: str = ""
    long_lines: int = 0
    """Number of lines of which only a part was looked at."""

"""What is known about one log file after it has been read."""

from __future__ import annotations

import msgspec

from ray_sentinel.evidence.logs.errors.exits import ProcessExit
from ray_sentinel.evidence.logs.errors.signatures import Signature
from ray_sentinel.evidence.logs.errors.watchdog import RankWork
from ray_sentinel.evidence.logs.lines.lines import NOBODY, Origin
from ray_sentinel.evidence.logs.training.phases import PhaseSeen
from ray_sentinel.evidence.logs.training.steps import ReportedStep
from ray_sentinel.model.triage import LogException


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file and what its name shows."""

    label: str
    """The path as it is shown."""
    kind: str = "log"
    """"log", "worker", "driver", "raylet", "gcs", "monitor", "ray", "rank", "nccl", "kernel",
    "slurm", "agent"."""
    origin: Origin = NOBODY
    """Whose lines these are, where the name tells."""
    stderr: bool = False
    modified: float | None = None
    size: int = 0


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A line (or block) that matches a signature."""

    file: int
    offset: int
    """Of the line's first byte."""
    text: str
    signature: Signature
    groups: dict[str, str] = {}
    origin: Origin = NOBODY
    time: float | None = None
    own_time: bool = False
    """The time stands on the line itself; else it is that of the last dated line before it."""
    next_time: float | None = None
    """Of the first dated line after it, if one is near."""
    streamed: bool = False
    """The line bears Ray's prefix: another process printed it, and it came here late."""
    repeated: int = 1
    exception: LogException | None = None
    exit: ProcessExit | None = None


class StepSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A step line found in a file."""

    step: ReportedStep
    offset: int
    time: float | None = None
    own_time: bool = False
    next_time: float | None = None
    """As a hit's."""
    rank: int | None = None
    pid: int | None = None
    streamed: bool = False
    """It bears Ray's prefix: it was printed by another process than the file's own."""


class FileFacts(msgspec.Struct, kw_only=True):
    """Everything the analysis needs about one file; bounded however large the file is."""

    file: LogFile
    hits: list[Hit] = []
    counts: dict[str, int] = {}
    """How often each signature was seen, by its id."""
    steps: list[StepSeen] = []
    phases: list[PhaseSeen] = []
    works: list[RankWork] = []
    processes: list[Origin] = []
    """Processes whose rank and pid were named together."""
    facts: dict[str, str] = {}
    first_time: float | None = None
    last_time: float | None = None
    last_times: tuple[float, ...] = ()
    """Of the last dated lines, the newest first; few."""
    last_line: str = ""
    last_offset: int = 0
    sampled: str = ""
    problem: str = ""
    long_lines: int = 0
    """Lines of which only a part was looked at."""

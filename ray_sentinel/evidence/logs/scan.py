"""Scans a log's bytes for its facts: cheap passes find the lines that are worth parsing.

A file is passed in chunks. In each, every trigger word is looked for, and only the lines found are
decoded and matched against the catalogue (``trouble``). Lines of equal shape (digits aside) that
matched nothing are soon skipped, so that chatter costs little. Windows of the file are read for
steps and phases (``movement``).
"""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.evidence.logs.errors.error_scanner import ErrorScanner
from ray_sentinel.evidence.logs.lines.chunk import (
    MAX_LINE,
    Chunk,
    first_time,
    last_times,
    long_lines,
    one_a_line,
    split_lines,
)
from ray_sentinel.evidence.logs.lines.lines import Origin, parse_line
from ray_sentinel.evidence.logs.lines.times import driver_began
from ray_sentinel.evidence.logs.records import FileFacts, LogFile
from ray_sentinel.evidence.logs.training.bare_steps import surest
from ray_sentinel.evidence.logs.training.movement import MovementReader

# What a log's header says about the job: nodes, world size, arguments, checkpoint interval.

_FACTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("arguments", re.compile(r"\bPASSTHROUGH_ARGS\s*[=:]\s*(.+)")),
    (
        "nodes",
        re.compile(
            r"\b(?:NNODES|SLURM_(?:JOB_)?NUM_NODES|num_nodes|nnodes)['\"]?\s*[=:]\s*['\"]?(\d+)\b"
        ),
    ),
    ("node_list", re.compile(r"\b(?:NODE_LIST|SLURM_(?:JOB_)?NODELIST)\s*[=:]\s*(\S+)")),
    ("world_size", re.compile(r"\bworld[_ ]size['\"]?\s*[=:]?\s*['\"]?(\d+)\b", re.IGNORECASE)),
    (
        "checkpoint_period",
        re.compile(
            r"\b(?:checkpoint_(?:period|interval)|save_steps|save[-_]interval|save_freq)"
            r"['\"]?\s*[=:. ]+['\"]?(\d+)\b"
        ),
    ),
    (
        "total_steps",
        re.compile(
            r"\b(?:Config param steps: |max_steps['\"]?\s*[=:]\s*|train[-_]iters['\"]?\s*[=:. ]+"
            r"|PASSTHROUGH_ARGS\b.*\bsteps=|Total optimization steps = "
            r"|total_training_steps['\"]?\s*[=:]\s*)(\d[\d,]*)\b"
        ),
    ),
    (
        "heartbeat_timeout_seconds",
        re.compile(r"\bjax_distributed_heartbeat_timeout_seconds['\"]?\s*[=: ]+(\d+)\b"),
    ),
    ("job_id", re.compile(r"\b(?:SLURM_JOB_ID|SLURM_JOBID)\s*[=:]\s*(\d+)\b|\b(raysubmit_\w+)\b")),
    (
        "resumed_from_step",
        re.compile(
            r"(?:resum\w+|restor\w+|load\w+ checkpoint)[^\n]{0,120}?"
            r"(?:step[_ ]?|iteration |checkpoint-|iter_0*)(\d+)\b",
            re.IGNORECASE,
        ),
    ),
)
_HEAD = 256 * 1024
_DIGITS = 18
_LONGEST = 2000


def read_header(head: bytes) -> dict[str, str]:
    """The first value of each fact at the beginning of a log."""
    text = head[:_HEAD].decode("utf-8", "replace")
    found: dict[str, str] = {}
    for name, pattern in _FACTS:
        match = pattern.search(text)
        if match is not None:
            value = next((group for group in match.groups() if group), "")
            value = value[:_LONGEST].strip()
            value = value.replace(",", "") if name == "total_steps" else value
            found[name] = value[:_DIGITS] if value.isdigit() else value
    return found


# Which process is which rank, where a launcher lists its workers.
#
# Ray Train prints when its workers have started
# (``ray/train/v2/_internal/execution/worker_group``)::
#
#     - (ip=10.0.0.2, pid=4711) world_rank=3, local_rank=1, node_rank=0
#
# with ``node_id=...,`` before the address in its first version.

HINT = b"world_rank="
_RAY_TRAIN = re.compile(
    rb"\((?:node_id=\w+, )?ip=(?P<ip>[0-9A-Fa-f.:]+), pid=(?P<pid>\d{1,9})\) "
    rb"world_rank=(?P<rank>\d{1,9}), local_rank=(?P<local>\d{1,9})\b"
)
_MOST = 16_384


def listed_workers(data: bytes) -> list[Origin]:
    """The workers that ``data`` lists, at most 16,384."""
    if HINT not in data:
        return []
    return [
        Origin(
            rank=int(match["rank"]),
            local_rank=int(match["local"]),
            pid=int(match["pid"]),
            ip=match["ip"].decode("ascii"),
        )
        for match, _ in zip(_RAY_TRAIN.finditer(data), range(_MOST), strict=False)
    ]


_MOST_LINES, _MOST_SWIFT = 20_000, 50
"""Most lines of one chunk that a single word may call up from its front, and as many from its end:
where the chunk is looked at closely, and elsewhere."""
_FRONT, _FRONT_LINES, _BACK = 65_536, 400, 262_144
"""Where a file's first time is looked for, in bytes and in lines from the front, and where its last
ones are, in bytes from the end."""
_LAST_TIMES = 8


class Scanner:
    """Collects the facts of one file. Feed it the file's chunks in order."""

    def __init__(self, file: LogFile, index: int, catalogue: Catalogue, year: int) -> None:
        self.catalogue, self.year = catalogue, year
        self.out = FileFacts(file=file)
        self._dated: float | None = None
        """The last date in what was fed so far."""
        self._began: float | None = None
        """When the Ray driver began whose output the file may be."""
        self._errors = ErrorScanner(self.out, index, catalogue)
        self._movement = MovementReader(self.out, catalogue.marks)

    def feed(self, data: bytes, base: int, limit: int, *, thorough: bool = True) -> None:
        """Examine the lines of ``data`` that begin before ``limit``; the rest is only context.

        ``base`` is the file's offset of ``data[0]``, which must be the first byte of a line.
        """
        if self._began is None and self._dated is None:
            front = data[:_FRONT].decode("utf-8", "replace").split("\n")[:_FRONT_LINES]
            self._began = driver_began(front, self.year)
        chunk = self._chunk(data, base, self._dated)
        self.out.long_lines += long_lines(chunk.data[:limit])
        most = _MOST_LINES if thorough else _MOST_SWIFT
        for start, at in self.catalogue.triggers.lines(chunk.data.lower(), limit, most):
            self._errors.scan_line(chunk, start, at)
        self._errors.forget_before(base + limit)
        self._dated = chunk.last_date(limit)

    def sample(self, data: bytes, base: int) -> None:
        """Read the steps, the phases and the list of workers in a window of the file."""
        self.out.processes.extend(listed_workers(data))
        self._movement.read(self._chunk(data, base))

    def _chunk(self, data: bytes, base: int, earlier: float | None = None) -> Chunk:
        return Chunk(
            data=one_a_line(data), base=base, year=self.year, began=self._began, earlier=earlier
        )

    def ends(self, head: bytes, tail: bytes, tail_base: int) -> None:
        """Record when the file begins and ends, and the facts in its header."""
        out = self.out
        out.first_time = first_time(head[:_FRONT].split(b"\n")[:_FRONT_LINES], self.year)
        out.last_times = last_times(tail[-_BACK:].split(b"\n"), self.year, _LAST_TIMES, self._began)
        out.last_time = out.last_times[0] if out.last_times else None
        lines = [(at, raw) for at, raw in split_lines(one_a_line(tail)) if raw.strip()]
        if lines:
            at, raw = lines[-1]
            out.last_line = parse_line(raw[:MAX_LINE].decode("utf-8", "replace")).text
            out.last_offset = tail_base + at
        out.facts = read_header(head)

    def result(self) -> FileFacts:
        """The facts from everything that was fed."""
        self.out.hits = self._errors.hits.kept()
        self.out.counts = self._errors.hits.counts
        if self._movement.counts_by_ends:
            self.out.steps = [seen for seen in self.out.steps if not seen.step.per_epoch]
        self.out.steps.sort(key=lambda seen: seen.offset)
        self.out.steps = surest(self.out.steps, lambda seen: seen.step)
        self.out.phases.sort(key=lambda seen: seen.offset)
        return self.out

"""What a training's own log says about its steps: step, loss, seconds, tokens per second.

The logs are those that the ranks write their output to (Ray's worker logs among them), and files
that are named. The lines of common frameworks are known; ``patterns`` adds the user's own.
"""

from __future__ import annotations

import glob
import os
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.api import Absent, Collector, Context, Metric, Sample, Seconds
from ray_sentinel.api import Options as BaseOptions
from ray_sentinel.errors import ConfigError
from ray_sentinel.evidence.logs.lines.lines import parse_line
from ray_sentinel.evidence.logs.training.bare_steps import STEP_END_HINTS, SplitSteps
from ray_sentinel.evidence.logs.training.steps import HINTS, ReportedStep
from ray_sentinel_plugins._files import Files
from ray_sentinel_plugins._raylets import any_raylet, own_raylet

FIRST_BYTES = 256 << 10
"""Bytes at the end of a log that are read when it is first found."""
MOST_BYTES = 4 << 20
"""Most bytes of one read; of a log that grows faster, only the end is read."""
_ENDS = re.compile(rb"[\r\n]+")


class LogTail:
    """Follows one log that is being written, and may be truncated, rotated or replaced. A line ends
    with a newline or, as progress bars do, a carriage return."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0.0
        """When it was last written to, in Unix seconds."""
        self._offset: int | None = None
        self._file = (0, 0)

    def lines(self) -> list[bytes]:
        """The whole lines that are new. Raises OSError if the file cannot be read."""
        handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return []
            self.written = status.st_mtime
            file = (status.st_dev, status.st_ino)
            if self._offset is None:
                self._offset = max(0, status.st_size - FIRST_BYTES)
            elif file != self._file or status.st_size < self._offset:
                self._offset = 0
            self._file = file
            self._offset = max(self._offset, status.st_size - MOST_BYTES)
            data = os.pread(handle, MOST_BYTES, self._offset)
        finally:
            os.close(handle)
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._offset += end
        return [line for line in _ENDS.split(data[:end]) if line]


SCALAR = Metric(
    "train_scalar",
    "gauge",
    "A number of the training: given to step(), or (name log_...) read from its log.",
    ("job", "rank", "name"),
)

RAYLET = Metric(
    "train_raylet_log_timestamp_seconds",
    "gauge",
    "When this node's raylet last wrote to raylet.out: it goes on while the cluster lives.",
)

GROUPS = ("step", "loss", "seconds", "tokens_per_second")
"""The names of the numbers, and of the groups in the user's patterns."""
_PATTERNS = "[collectors.train_logs]: patterns: "
_HINTS = (*HINTS, *STEP_END_HINTS, b"shards:")
MAX_LINE = 4096
"""Most bytes of a line that may tell of a step; longer lines are ignored."""
MAX_WRITERS = 1024
"""Most writers of one log whose steps are joined from several lines."""
MAX_LOGS = 256
"""Most logs that are followed at one time."""
SEARCH_SECONDS = 10.0
"""Seconds between two searches for the ranks' logs."""
_SHARDS = re.compile(r"(?i)\bloading (?:[\w-]+ ){0,3}shards: *(\d{1,3})%")
"""Pattern of lines about weights that are being read: sglang's ``Multi-thread loading shards: 40%
Completed``, vLLM's ``Loading safetensors checkpoint shards``, Transformers' ``Loading checkpoint
shards``."""


class LogOwner(msgspec.Struct, frozen=True):
    """Whose log it is, if known."""

    job: str = ""
    rank: int | None = None


class TrainLog:
    """One log, and the last numbers of each rank that writes to it."""

    def __init__(self, path: Path, owner: LogOwner) -> None:
        self.tail = LogTail(path)
        self.owner = owner
        """Whose lines they are if they do not say."""
        self.numbers: dict[LogOwner, dict[str, float]] = {}
        self._steps: dict[LogOwner, SplitSteps] = {}

    def steps_of(self, owner: LogOwner) -> SplitSteps:
        """What joins the lines of one writer that tell of the same step."""
        if owner not in self._steps and len(self._steps) >= MAX_WRITERS:
            return SplitSteps()
        return self._steps.setdefault(owner, SplitSteps())


class TrainLogsCollector(Collector):
    """Follows the logs of the ranks on this node."""

    name = "train_logs"
    interval = 2.0
    metrics = (SCALAR, RAYLET)

    class Options(BaseOptions, frozen=True):
        """``[collectors.train_logs]``."""

        files: tuple[str, ...] = ()
        """Paths of logs besides those of the ranks, such as the job's main log; ``*`` is
        understood."""
        patterns: tuple[str, ...] = ()
        """Regular expressions with groups named step, loss, seconds and tokens_per_second."""
        stale_seconds: Seconds = 3600.0
        """Seconds without a write after which what a log said is no longer served."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._options = context.options or self.Options()
        self._files = Files(self.log, live=context.live)
        self._patterns = [_compiled(pattern) for pattern in self._options.patterns]
        self._logs: dict[Path, TrainLog] = {}
        self._search_due = 0.0

    def collect(self) -> Iterator[Sample]:
        """The newest numbers of each log. Raises Absent if no log has any."""
        now = time.monotonic()
        if now >= self._search_due:
            self._search()
            self._search_due = now + SEARCH_SECONDS
        for log in self._logs.values():
            self._follow(log)
        if not self._logs:
            self.pause_seconds = self._search_due - now
        samples = [*self._samples(), *self._raylet()]
        if not samples:
            raise Absent("no log of a rank here tells of a step; `files` and `patterns` add some")
        yield from samples

    def _search(self) -> None:
        found: dict[Path, LogOwner] = {}
        for rank in self.context.ranks if self.context.live else ():
            for path in _outputs(self.context.proc, rank.process.pid):
                known = found.get(path)
                # Ranks that share one file: its unmarked lines are taken for the first one's.
                if known is None or (known.rank or 0) > rank.id.rank:
                    found[path] = LogOwner(rank.id.job, rank.id.rank)
        jobs = {rank.id.job for rank in self.context.ranks}
        named = LogOwner(jobs.pop() if len(jobs) == 1 else "")
        for name in self._options.files:
            matches = glob.glob(os.path.expanduser(name))
            if not matches:
                self._files.complain(name, "is not there")
            for match in matches:
                found.setdefault(Path(match), named)
        for path in self._logs.keys() - found.keys():
            del self._logs[path]
        wanted = self._files.bounded(sorted(found), MAX_LOGS, "the logs of the ranks")
        for path in wanted:
            if path not in self._logs:
                self._logs[path] = TrainLog(path, found[path])

    def _follow(self, log: TrainLog) -> None:
        try:
            lines = log.tail.lines()
        except OSError as error:
            self._files.complain(log.tail.path, f"cannot be read: {error.strerror or error}")
            return
        for raw in lines:
            if len(raw) <= MAX_LINE and (self._patterns or any(hint in raw for hint in _HINTS)):
                self._add_line(log, raw.decode("utf-8", "replace"))

    def _add_line(self, log: TrainLog, text: str) -> None:
        line = parse_line(text)
        rank = line.origin.rank if line.origin.rank is not None else log.owner.rank
        owner = LogOwner(log.owner.job, rank)
        numbers = self._by_user_patterns(line.text) or loading(line.text)
        if not numbers:
            numbers = _numbers_of_step(log.steps_of(owner).feed(line.text))
        if numbers:
            log.numbers.setdefault(owner, {}).update(numbers)

    def _by_user_patterns(self, text: str) -> dict[str, float]:
        for pattern in self._patterns:
            match = pattern.search(text)
            numbers = {
                name: number
                for name, value in (match.groupdict() if match else {}).items()
                if name in GROUPS and (number := _number(value)) is not None
            }
            if numbers:
                return numbers
        return {}

    def _samples(self) -> Iterator[Sample]:
        seen: set[tuple[LogOwner, str]] = set()
        newest = sorted(self._logs.values(), key=lambda log: log.tail.written, reverse=True)
        for log in newest:
            if self._too_old(log):
                continue
            for owner, numbers in log.numbers.items():
                for name, value in numbers.items():
                    if (owner, name) not in seen:
                        seen.add((owner, name))
                        yield _sample(owner, name, value)

    def _raylet(self) -> Iterator[Sample]:
        """The sample of the raylet above this process, or of any on this machine when run by
        hand."""
        if not self.context.live:
            return
        raylet = own_raylet(self._files, self.context.proc, os.getpid())
        if raylet is None and self.context.state_dir is None:
            raylet = any_raylet(self._files, self.context.proc)
        if raylet is not None and raylet.output:
            try:
                yield RAYLET(os.stat(raylet.output).st_mtime)
            except OSError as error:
                why = error.strerror or error
                self._files.complain(raylet.output, f"its time of writing is unknown: {why}")

    def _too_old(self, log: TrainLog) -> bool:
        # By hand, or of a captured tree, the newest there is is what is asked for.
        by_hand = not self.context.live or self.context.state_dir is None
        return not by_hand and time.time() - log.tail.written > self._options.stale_seconds


def _sample(owner: LogOwner, name: str, value: float) -> Sample:
    known = (("job", owner.job), ("rank", "" if owner.rank is None else str(owner.rank)))
    labels = tuple((key, text) for key, text in known if text)
    return Sample(SCALAR.name, (*labels, ("name", f"log_{name}")), value)


def loading(text: str) -> dict[str, float]:
    """The share of the weights that is loaded, 0 to 1, if the line says so.

    >>> loading("Multi-thread loading shards:  40% Completed | 2/5 [00:01<00:02]")
    {'shards_loaded_ratio': 0.4}
    """
    found = _SHARDS.search(text)
    share = int(found.group(1)) / 100 if found else None
    return {"shards_loaded_ratio": share} if share is not None and share <= 1 else {}


def _numbers_of_step(step: ReportedStep | None) -> dict[str, float]:
    """The numbers that a step's lines give. A progress bar at 0, and a line that gives no more than
    a number, do not report a step."""
    if step is None or step.bare:
        return {}
    found = {name: getattr(step, name) for name in GROUPS}
    if step.left:
        found.pop("step")
    return {name: float(value) for name, value in found.items() if value is not None}


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
        re.check(compiled)
    except re.error as error:
        raise ConfigError(
            f"{_PATTERNS}{pattern!r} is no regular expression to use: {error}"
        ) from None
    if not set(compiled.groupindex) & set(GROUPS):
        raise ConfigError(f"{_PATTERNS}{pattern!r} names none of the groups {', '.join(GROUPS)}")
    return compiled


def _number(text: str | None) -> float | None:
    try:
        return float(text.replace(",", "")) if text else None
    except ValueError:
        return None


def _outputs(proc: Path, pid: int) -> Iterable[Path]:
    """The files that a process's stdout and stderr lead to."""
    for number in (1, 2):
        try:
            target = os.readlink(proc / str(pid) / "fd" / str(number))
        except OSError:
            continue
        if target.startswith("/") and not target.startswith("/dev/"):
            yield Path(target)

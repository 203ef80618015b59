"""The scalars that a training writes for TensorBoard: as gauges, and each step at its own time.

The folder comes from ``[collectors.tensorboard] folder`` or from the event files that the ranks
have open. Gauges carry the newest values; the samples with a timestamp are every value that was
written, for the scrape job that keeps the history of steps.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ray_sentinel.api import Collector, Context, Family, Metric, NoData, Sample
from ray_sentinel.api import Options as BaseOptions
from ray_sentinel_plugins._event_files.events import Event
from ray_sentinel_plugins._event_files.follow import FollowedFile, FollowedFolder, event_folders
from ray_sentinel_plugins._event_files.places import Readership, open_folders, run_labels
from ray_sentinel_plugins._event_files.state import MAX_TAGS, RunState, metric_name
from ray_sentinel_plugins._files import Files, clean

STEP = Metric("tb_step", "gauge", "The training's step, from its event files.")
FILL = Metric(
    "tb_metrics_plugin_staleness_fill", "gauge", "0: every value was written by the training."
)
CORRUPT = Metric(
    "tb_corrupt_records_total", "counter", "Places in event files at which records were lost."
)
RESERVED = frozenset({STEP.name, FILL.name, CORRUPT.name})

SEARCH_SECONDS = 10.0
"""Between two searches for folders."""
READ_SECONDS = 1.0
"""Of one collection; a long file is read on in the next."""
READ_SECONDS_BY_HAND = 4.0
"""There is no next one."""
MAX_POINTS = 50_000
"""Values that are handed on at one time; beyond, a file is read on when there is room again."""
LEAST_SECONDS = 20.0
"""A value is handed on for so long at least: several scrapes."""
SETTLED_SECONDS = 90.0
"""And for so long where there is room: one that scrapes rarely gets it too. One that gets a value
again, with the same time, keeps it once."""
HOLD_SECONDS = 660.0
"""While nobody scrapes a value is held for so long: ten minutes without a Prometheus lose nothing.
Where there is no more room, the files are read on when there is."""
START_SECONDS = 120.0
"""In which a first Prometheus may come; after that, one that never came is not waited for where
there is no more room."""
OLDEST_SECONDS = 30 * 86400.0 - 3600.0
"""What Prometheus takes at most, by the configuration that we make for it; a single older sample
fails the whole scrape."""
MAX_TIME = 1e11
"""Unix seconds; a time beyond is none."""

Labels = tuple[tuple[str, str], ...]


class Writer(msgspec.Struct, frozen=True):
    """Who wrote an event file: the how-manieth process that did, and its host, if the file's name
    tells. The host is part of the series, so that they stay the same whichever agent reads."""

    attempt: int
    host: str = ""

    @property
    def labels(self) -> Labels:
        """What its values are told apart by."""
        attempt = ("attempt", str(self.attempt))
        return (("host", clean(self.host.split(".")[0])), attempt) if self.host else (attempt,)


class Run:
    """One folder of event files and what was read from it."""

    def __init__(self, folder: Path, begun: float = 0.0) -> None:
        self.followed = FollowedFolder(folder)
        self.state = RunState()
        self.points: list[tuple[str, float, float, Writer]] = []
        """(Tag, value, Unix seconds, writer) of each value that is handed on."""
        self.steps: list[tuple[int, float, Writer]] = []
        """(Step, Unix seconds, writer) likewise."""
        self.too_old = 0
        """Values that no Prometheus would take."""
        self._begun = begun
        self._batches: deque[tuple[float, int, int]] = deque()
        """(Monotonic time, points, steps) of each collection that added some."""
        self._last_step: tuple[int, int] | None = None
        self._stamps: dict[tuple[str, int], tuple[float, int]] = {}

    def release(self, now: float, handed_on: float | None) -> None:
        """Let go of what was handed on for long enough; ``now`` and ``handed_on``, the last moment
        at which somebody took it, are monotonic."""
        known_points = sum(points for _, points, _ in self._batches)
        known_steps = sum(steps for _, _, steps in self._batches)
        if len(self.points) > known_points or len(self.steps) > known_steps:
            added = (now, len(self.points) - known_points, len(self.steps) - known_steps)
            self._batches.append(added)
        while self._batches:
            since, points, steps = self._batches[0]
            full = len(self.points) >= MAX_POINTS
            least = LEAST_SECONDS if full else SETTLED_SECONDS
            taken = handed_on is not None and handed_on - since >= least
            nobody = handed_on is None and now - max(self._begun, since) >= START_SECONDS
            if not (taken or (nobody and full) or now - since >= HOLD_SECONDS):
                break
            del self.points[:points], self.steps[:steps]
            self._batches.popleft()

    def read(self, until: float, history: bool, files: Files) -> None:
        """Read what is new, until the monotonic moment; what cannot be read is said."""
        try:
            self.followed.look()
        except OSError as error:
            files.complain(self.followed.path, f"cannot be listed: {error.strerror or error}")
            return
        for file in self.followed.files.values():
            try:
                self._read_file(file, until, history)
            except OSError as error:
                files.complain(file.path, f"cannot be read: {error.strerror or error}")
                file.caught_up = True
            if not file.caught_up:
                return  # a later file must not be read before an earlier one

    def _read_file(self, file: FollowedFile, until: float, history: bool) -> None:
        file.caught_up = False
        writer = Writer(file.attempt, file.host)
        while time.monotonic() < until and len(self.points) < MAX_POINTS and not file.caught_up:
            oldest = time.time() - OLDEST_SECONDS
            for event in file.read():
                self._take(event, writer, oldest if history else math.inf)

    def _take(self, event: Event, writer: Writer, oldest: float) -> None:
        taken = self.state.take(event)
        if not taken or not 0 < event.wall_time < MAX_TIME or oldest == math.inf:
            return
        if event.wall_time < oldest:
            self.too_old += len(taken)
            return
        attempt = writer.attempt
        for tag, value in taken:
            self.points.append((tag, value, self._stamp(tag, event.wall_time, attempt), writer))
        step = self.state.step
        if step is not None and (step, attempt) != self._last_step:
            self._last_step = (step, attempt)
            self.steps.append((step, self._stamp("", event.wall_time, attempt), writer))

    def _stamp(self, tag: str, wall_time: float, attempt: int) -> float:
        """The value's own time in whole milliseconds, as they are stored; one millisecond after
        the value before it where both fall into the same."""
        stamp = round(wall_time * 1000)
        last_time, last_stamp = self._stamps.get((tag, attempt), (0.0, 0))
        if wall_time >= last_time and stamp <= last_stamp:
            stamp = last_stamp + 1
        self._stamps[tag, attempt] = (wall_time, stamp)
        return stamp / 1000


class TensorboardCollector(Collector):
    """Follows the event files of all runs."""

    name = "tensorboard"
    interval = 2.0  # Nothing new costs 0.1 ms.
    metrics = (STEP, FILL, CORRUPT)
    dynamic = ("tb_",)

    class Options(BaseOptions, frozen=True):
        """``[collectors.tensorboard]``."""

        folder: str = ""
        """Where the event files are, in it or below; "" looks at the ranks' open files."""
        history: bool | None = None
        """Hand on every value at its own time, too; None does, but not when run once by hand."""
        stale_seconds: float = 3600.0
        """Gauges of a run that was not written to for so long are no longer served."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._files = Files(self.log, live=context.live)
        self._runs: dict[Path, Run] = {}
        self._readership = Readership()
        self._search_due = 0.0
        self._root: Path | None = None

    def close(self) -> None:
        """Leave the runs to others."""
        self._readership.close()

    def collect(self) -> Iterator[Family]:
        """The newest values, and each value at its time. NoData where there is no run."""
        now = time.monotonic()
        if now >= self._search_due:
            self.search()
            self._search_due = now + SEARCH_SECONDS
        runs = {folder: run for folder, run in self._runs.items() if self._reads(folder, run)}
        seconds = READ_SECONDS_BY_HAND if self._by_hand else READ_SECONDS
        for run in runs.values():
            run.release(now, self.context.handed_on)
            run.read(now + seconds, self._history, self._files)
        if not runs:
            raise NoData(self._nothing())
        yield from self._families(runs)

    @property
    def _history(self) -> bool:
        told = self.context.options.history if self.context.options else None
        return not self._by_hand if told is None else bool(told)

    @property
    def _by_hand(self) -> bool:
        return self.context.state_dir is None and not self.context.ranks

    def search(self) -> None:
        """Look for folders that are not followed yet; done by itself every now and then."""
        options = self.context.options
        given = options.folder if options else ""
        if given:
            self._root = Path(given).expanduser()
            if not self._root.is_dir():
                self._files.complain(self._root, "is not there, or is no folder")
            found = set(event_folders(self._root))
        else:
            # Once found, a folder is kept: a writer may close its file between two values.
            found = open_folders(self.context.proc, self._pids()) if self.context.live else set()
        for folder in sorted(found - self._runs.keys()):
            self.log.info("following the event files in %s", clean(str(folder)))
            self._runs[folder] = Run(folder, time.monotonic())

    def _pids(self) -> list[int]:
        if self._by_hand:
            return [int(name) for name in self._files.names(self.context.proc) if name.isdigit()]
        return [rank.process.pid for rank in self.context.ranks]

    def _reads(self, folder: Path, run: Run) -> bool:
        """Whether it is on us to read the run; by hand, everything is read."""
        if self._by_hand or not self.context.live:
            return True
        try:
            # Also where another reads it: a newer file may be of a process on this host.
            run.followed.look()
        except OSError as error:
            self._files.complain(folder, f"cannot be listed: {error.strerror or error}")
            return False
        has_rank_0 = any(rank.id.rank == 0 for rank in self.context.ranks)
        return self._readership.ours(folder, run.followed.newest, has_rank_0=has_rank_0)

    def _nothing(self) -> str:
        if self._root is not None:
            return f"{self._root} holds no event files that are read from this node"
        return "no rank here has an event file open; [collectors.tensorboard] folder names a folder"

    def _families(self, runs: dict[Path, Run]) -> Iterator[Family]:
        names = run_labels(runs, self._root)
        gathered: dict[str, list[Sample]] = defaultdict(list)
        clashes = self._clashes(runs)
        for folder, run in runs.items():
            labels: Labels = (("run", clean(names[folder])),) if len(self._runs) > 1 else ()
            gathered[CORRUPT.name].append(Sample(CORRUPT.name, labels, run.followed.corrupt))
            self._complain(folder, run)
            if self._is_current(run):
                for sample in _gauges(run.state, labels, clashes):
                    gathered[sample.name].append(sample)
            for sample in _history(run, labels, clashes):
                gathered[sample.name].append(sample)
        known = {metric.name: metric for metric in self.metrics}
        for name, samples in gathered.items():
            metric = known.get(name) or Metric(name, "gauge", "A scalar of the event files.")
            yield Family(metric, tuple(samples))

    def _is_current(self, run: Run) -> bool:
        """All of it was read, and it is still written to; by hand, the newest is what there is."""
        if not run.followed.caught_up and not self._by_hand:
            return False
        limit = self.context.options.stale_seconds if self.context.options else 3600.0
        by_hand = self._by_hand or not self.context.live
        return by_hand or time.time() - run.followed.written < limit

    def _clashes(self, runs: dict[Path, Run]) -> frozenset[str]:
        """Names that more than one tag has: their series are told apart by a label."""
        tags: dict[str, set[str]] = defaultdict(set)
        for run in runs.values():
            for tag in run.state.tags:
                tags[metric_name(tag)].add(tag)
        clashes = {name for name, of in tags.items() if len(of) > 1 or name in RESERVED}
        for name in clashes:
            shown = ", ".join(sorted(clean(tag) for tag in tags[name]))
            self._files.complain(name, f"is the name for several tags, told by a label: {shown}")
        return frozenset(clashes)

    def _complain(self, folder: Path, run: Run) -> None:
        if run.followed.corrupt:
            self._files.complain(folder, "holds corrupt records, which are left out")
        if self._by_hand and not run.followed.caught_up:
            self._files.complain(folder, f"was not read to its end in {READ_SECONDS_BY_HAND:g} s")
        if run.too_old:
            self._files.complain(
                folder,
                f"holds values of more than {OLDEST_SECONDS / 86400:.0f} days ago, which "
                "no Prometheus takes; they are not handed on",
            )
        if run.state.too_many:
            self._files.complain(folder, f"holds more than {MAX_TAGS} tags; the rest is left out")
        if any(file.oversize for file in run.followed.files.values()):
            self._files.complain(folder, "holds records of more than 64 MiB, which are passed over")


def _tagged(tag: str, labels: Labels, clashes: frozenset[str]) -> tuple[str, Labels]:
    name = metric_name(tag)
    return (name, (*labels, ("tag", clean(tag)))) if name in clashes else (name, labels)


def _gauges(state: RunState, labels: Labels, clashes: frozenset[str]) -> Iterator[Sample]:
    step = state.step
    if step is None:
        return
    yield Sample(STEP.name, labels, step)
    yield Sample(FILL.name, labels, 0.0)
    for tag, latest in state.tags.items():
        name, tagged = _tagged(tag, labels, clashes)
        yield Sample(name, tagged, latest.value)


def _history(run: Run, labels: Labels, clashes: frozenset[str]) -> Iterator[Sample]:
    """Every value that is handed on now, at its own time."""
    for tag, value, stamp, writer in run.points:
        name, tagged = _tagged(tag, labels, clashes)
        yield Sample(name, (*tagged, *writer.labels), value, stamp)
    for step, stamp, writer in run.steps:
        told = (*labels, *writer.labels)
        yield Sample(STEP.name, told, step, stamp)
        yield Sample(FILL.name, told, 0.0, stamp)

"""The scalars that a training writes for TensorBoard: as gauges, and each step at its own time.

The folder comes from ``[collectors.tensorboard] folder`` or from the event files that the ranks
have open. Gauges carry the newest values; the samples with a timestamp are every value that was
written, for the scrape job that keeps the history of steps.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ray_sentinel.api import Absent, Collector, Context, Family, Metric, Sample, Seconds
from ray_sentinel.api import Options as BaseOptions
from ray_sentinel.evidence.event_files.state import MAX_TAGS, RunState, metric_name
from ray_sentinel_plugins._event_files.follow import event_folders
from ray_sentinel_plugins._event_files.places import Readership, open_folders, run_labels
from ray_sentinel_plugins._event_files.run import OLDEST_SECONDS, EventFileRun, FileAuthor, Labels
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
"""Seconds between two searches for folders."""
MAX_RUNS = 200
"""Most runs that are followed; of those that are no longer found, the ones written to last are
kept."""
READ_SECONDS = 1.0
"""Seconds that one collection may read; a long file is read on in the next."""
READ_SECONDS_BY_HAND = 4.0
"""Seconds that a collection run by hand may read: there is no next one."""


class TensorboardCollector(Collector):
    """Follows the event files of all runs."""

    name = "tensorboard"
    interval = 2.0  # Nothing new costs 0.1 ms.
    metrics = (STEP, FILL, CORRUPT)
    dynamic = ("tb_",)

    class Options(BaseOptions, frozen=True):
        """``[collectors.tensorboard]``."""

        folder: str = ""
        """Folder in or below which the event files are; "" looks at the ranks' open files."""
        history: bool | None = None
        """Whether to hand on every value at its own time, too; None for yes, except when run once
        by hand."""
        stale_seconds: Seconds = 3600.0
        """Seconds without a write after which the gauges of a run are no longer served."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._options: TensorboardCollector.Options = context.options or self.Options()
        self._files = Files(self.log, live=context.live)
        self._runs: dict[Path, EventFileRun] = {}
        self._readership = Readership()
        self._search_due = 0.0
        self._root: Path | None = None

    def close(self) -> None:
        """Leave the runs to others."""
        self._readership.close()

    def collect(self) -> Iterator[Family]:
        """The newest values, and each value at its time. Absent where there is no run."""
        now = time.monotonic()
        if now >= self._search_due:
            self.search()
            self._search_due = now + SEARCH_SECONDS
        runs = {folder: run for folder, run in self._runs.items() if self._reads(folder, run)}
        seconds = READ_SECONDS_BY_HAND if self._by_hand else READ_SECONDS
        for run in runs.values():
            run.release(now, self.context.handed_on)
            run.read(now + seconds, self._history, self._files)
        if not self._runs:
            self.pause_seconds = self._search_due - now
        if not runs:
            raise Absent(self._nothing())
        yield from self._families(runs)

    @property
    def _history(self) -> bool:
        told = self._options.history
        return not self._by_hand if told is None else told

    @property
    def _by_hand(self) -> bool:
        return self.context.state_dir is None and not self.context.ranks

    def search(self) -> None:
        """Look for folders that are not followed yet; done by itself every now and then."""
        if self._options.folder:
            self._root = Path(self._options.folder).expanduser()
            if not self._root.is_dir():
                self._files.complain(self._root, "is not there, or is no folder")
            found = set(event_folders(self._root))
        else:
            # Once found, a folder is kept: a writer may close its file between two values.
            found = open_folders(self.context.proc, self._pids()) if self.context.live else set()
        for folder in sorted(found - self._runs.keys()):
            self.log.info("following the event files in %s", clean(str(folder)))
            self._runs[folder] = EventFileRun(folder, time.monotonic())
        self._drop_runs(self._runs.keys() - found)

    def _drop_runs(self, over: set[Path]) -> None:
        oldest = sorted(over, key=lambda folder: (self._runs[folder].followed.written, folder))
        for folder in oldest[: max(0, len(self._runs) - MAX_RUNS)]:
            del self._runs[folder]
            self._readership.leave(folder)

    def _pids(self) -> list[int]:
        if self._by_hand:
            return [int(name) for name in self._files.names(self.context.proc) if name.isdigit()]
        return [rank.process.pid for rank in self.context.ranks]

    def _reads(self, folder: Path, run: EventFileRun) -> bool:
        """Whether this agent is the one to read the run; when run by hand, every run is read."""
        if self._by_hand or not self.context.live:
            return True
        try:
            # Also where another reads it: a newer file may be of a process on this host.
            run.followed.scan()
        except OSError as error:
            self._files.complain(folder, f"cannot be listed: {error.strerror or error}")
            return False
        has_rank_0 = any(rank.id.rank == 0 for rank in self.context.ranks)
        return self._readership.ours(folder, run.followed.newest, has_rank_0=has_rank_0)

    def _nothing(self) -> str:
        if self._root is not None:
            return f"{self._root} holds no event files that are read from this node"
        return "no rank here has an event file open; [collectors.tensorboard] folder names a folder"

    def _families(self, runs: dict[Path, EventFileRun]) -> Iterator[Family]:
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

    def _is_current(self, run: EventFileRun) -> bool:
        """Whether all of it was read and it is still being written to; when run by hand, always."""
        if not run.followed.caught_up and not self._by_hand:
            return False
        by_hand = self._by_hand or not self.context.live
        return by_hand or time.time() - run.followed.written < self._options.stale_seconds

    def _clashes(self, runs: dict[Path, EventFileRun]) -> frozenset[str]:
        """Names that more than one tag has: a label distinguishes their series."""
        tags: dict[str, set[str]] = defaultdict(set)
        for run in runs.values():
            for tag in run.state.tags:
                tags[metric_name(tag)].add(tag)
        clashes = {name for name, of in tags.items() if len(of) > 1 or name in RESERVED}
        for name in clashes:
            shown = ", ".join(sorted(clean(tag) for tag in tags[name]))
            self._files.complain(name, f"is the name for several tags, told by a label: {shown}")
        return frozenset(clashes)

    def _complain(self, folder: Path, run: EventFileRun) -> None:
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


def _history(run: EventFileRun, labels: Labels, clashes: frozenset[str]) -> Iterator[Sample]:
    """Every value that is handed on now, at its own time.

    There may be tens of thousands of few series: the name and labels of each are made once.
    """
    series: dict[tuple[str, FileAuthor], tuple[str, Labels]] = {}
    for tag, value, stamp, writer in run.points:
        made = series.get((tag, writer))
        if made is None:
            name, tagged = _tagged(tag, labels, clashes)
            made = series[tag, writer] = name, (*tagged, *writer.labels)
        yield Sample(*made, value, stamp)
    told: dict[FileAuthor, Labels] = {}
    for step, stamp, writer in run.steps:
        if writer not in told:
            told[writer] = (*labels, *writer.labels)
        yield Sample(STEP.name, told[writer], step, stamp)
        yield Sample(FILL.name, told[writer], 0.0, stamp)

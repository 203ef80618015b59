"""Scalars of TensorBoard event files, whole and at once: the truth about the training series."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ray_sentinel.diagnose.series import Grid, Reduce, Samples, Selector, TimeSeries
from ray_sentinel.evidence.event_files.events import Event
from ray_sentinel.evidence.event_files.state import MAX_TAGS, RunState, metric_name
from ray_sentinel.store.event_records import read_events
from ray_sentinel.store.memory import MemorySource

MAX_DEPTH = 6
MAX_TIME = 1e11
"""Unix seconds; a time beyond is none."""


def find_event_files(folder: Path) -> list[Path]:
    """Event files in a job's folder, the oldest first."""
    found: list[Path] = []
    level = [folder]
    for _ in range(MAX_DEPTH):
        deeper: list[Path] = []
        for place in level:
            try:
                entries = sorted(place.iterdir())
            except OSError:
                continue
            found += [entry for entry in entries if "tfevents" in entry.name and entry.is_file()]
            deeper += [
                entry
                for entry in entries
                if entry.is_dir() and not entry.is_symlink() and entry.name not in _SKIPPED
            ]
        level = deeper[:512]
    return sorted(found, key=lambda file: file.name)


_SKIPPED = frozenset({"prometheus", "ray_logs", "xla_dump", "incidents", "checkpoints"})


class EventFilesSource(MemorySource):
    """The ``tb_*`` series of some event files."""

    def span(self) -> tuple[float, float] | None:
        """First and last value; the last one counts for a usual step, so that no cell cuts it."""
        span = super().span()
        if span is None:
            return None
        gaps = [np.diff(one.times) for one in self.samples(Selector("tb_step"), -np.inf, np.inf)]
        known = np.concatenate([np.empty(0), *gaps])
        return span[0], span[1] + (float(np.median(known)) if known.size else 0.0)


def load_events(files: list[Path], host: str = "") -> EventFilesSource:
    """All scalars of some event files as ``tb_*`` series, with ``tb_step``.

    Each folder is a run; of several each has the label ``run``, its folder below what all have in
    common. Tags of one run that make one name have the label ``tag``.
    """
    runs: dict[Path, list[Path]] = defaultdict(list)
    for file in files:
        runs[file.parent].append(file)
    source = EventFilesSource("event files")
    for folder, of_run in runs.items():
        labels = {"host": host} if host else {}
        if len(runs) > 1:
            labels["run"] = os.path.relpath(folder, os.path.commonpath(list(runs)))
        _add_run(source, of_run, labels)
    return source


def _add_run(source: MemorySource, files: list[Path], labels: dict[str, str]) -> None:
    state = RunState()
    points: dict[str, _Points] = defaultdict(list)
    steps: _Points = []
    timeless = 0
    for file in files:
        for event in read_events(file, source.notes):
            if event.scalars and not 0 < event.wall_time < MAX_TIME:
                timeless += 1
                continue
            _take(event, state, points, steps)
    if timeless:
        source.notes.append(f"{timeless} events in {files[0].parent} have no time; left out")
    if state.too_many:
        source.notes.append(
            f"{files[0].parent} holds more than {MAX_TAGS} tags; later ones are not read"
        )
    tags: dict[str, list[str]] = defaultdict(list)
    for tag in points:
        tags[metric_name(tag)].append(tag)
    for name, alike in tags.items():
        for tag in alike:
            told = len(alike) > 1 or name == "tb_step"
            _add(source, name, {**labels, "tag": tag} if told else labels, points[tag])
    _add(source, "tb_step", labels, steps)


_Points = list[tuple[float, float]]
"""(Unix seconds, value)."""


def _take(event: Event, state: RunState, points: dict[str, _Points], steps: _Points) -> None:
    taken = state.take(event)
    for tag, value in taken:
        points[tag].append((event.wall_time, value))
    # Of the tag that is written most often: evaluations may be counted in epochs.
    step = float(state.step) if taken and state.step is not None else None
    if step is not None and (not steps or steps[-1][1] != step):
        steps.append((event.wall_time, step))


def _add(
    source: MemorySource, name: str, labels: dict[str, str], points: Iterable[tuple[float, float]]
) -> None:
    # Stable: of values of one moment the later one stays later.
    ordered = sorted(points, key=lambda point: point[0])
    source.add(name, labels, [time for time, _ in ordered], [value for _, value in ordered])


class WithEvents:
    """A source whose ``tb_*`` series come from event files: every step, no gap, no fill."""

    def __init__(self, source: TimeSeries, events: MemorySource) -> None:
        self._source, self._events = source, events
        self.title = source.title
        self.notes = [
            *source.notes,
            "training series are read from the event files",
            *events.notes,
        ]
        self._ours = set(events.families())

    @property
    def seconds_waiting(self) -> float:
        """Time spent waiting for the other source."""
        return float(getattr(self._source, "seconds_waiting", 0.0))

    def families(self) -> tuple[str, ...]:
        theirs = (
            name for name in self._source.families() if name != "tb_metrics_plugin_staleness_fill"
        )
        return tuple(sorted({*theirs, *self._ours}))

    def span(self) -> tuple[float, float] | None:
        return self._source.span() or self._events.span()

    def label_sets(self, name: str, start: float, end: float) -> list[dict[str, str]]:
        return self._of(name).label_sets(name, start, end)

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        return self._of(selector.name).samples(selector, start, end)

    def query_range(
        self, selector: Selector, start: float, end: float, step: float, reduce: Reduce = "last"
    ) -> Grid:
        return self._of(selector.name).query_range(selector, start, end, step, reduce)

    def _of(self, name: str) -> TimeSeries:
        return self._events if name in self._ours else self._source


def with_events(source: TimeSeries, folder: Path | None) -> TimeSeries:
    """``source`` with the training series of the event files in ``folder``, where they fit.

    Files of another run (whose time lies outside) are left alone.
    """
    if isinstance(source, EventFilesSource):
        return source
    files = find_event_files(folder) if folder is not None else []
    span = source.span()
    if not files or span is None:
        return source
    events = load_events(files)
    ours = events.span()
    if ours is None or ours[1] < span[0] or ours[0] > span[1]:
        return source
    return WithEvents(source, events)

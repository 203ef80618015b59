"""Scalars of TensorBoard event files, whole and at once: the truth about the training series."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ray_sentinel.diagnose.series import Grid, Reduce, Samples, Selector, TimeSeries
from ray_sentinel.store.event_records import read_scalars
from ray_sentinel.store.memory import MemorySource

MAX_DEPTH = 4


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


def metric_of(tag: str) -> str:
    """The series name of a tag.

    >>> metric_of("perf/step_time_seconds")
    'tb_perf_step_time_seconds'
    """
    return "tb_" + re.sub(r"[^a-z0-9]+", "_", tag.lower()).strip("_")


def load_events(files: list[Path], host: str = "") -> MemorySource:
    """All scalars of some event files as ``tb_*`` series, with ``tb_step``."""
    points: dict[str, dict[float, float]] = {}
    notes: list[str] = []
    for file in files:
        for time, step, tag, value in read_scalars(file, notes):
            points.setdefault(metric_of(tag), {})[time] = value
            points.setdefault("tb_step", {})[time] = float(step)
    source = MemorySource("event files", notes)
    for name, values in points.items():
        times = np.array(sorted(values))
        source.add(name, {"host": host} if host else {}, times, [values[t] for t in times])
    return source


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
    files = find_event_files(folder) if folder is not None else []
    span = source.span()
    if not files or span is None:
        return source
    events = load_events(files)
    ours = events.span()
    if ours is None or ours[1] < span[0] or ours[0] > span[1]:
        return source
    return WithEvents(source, events)

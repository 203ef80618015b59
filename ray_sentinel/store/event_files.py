"""Scalars of TensorBoard event files, whole and at once: the truth about the training series."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.runs import evaluates
from ray_sentinel.diagnose.series import Grid, Reduce, Samples, Selector, TimeSeries
from ray_sentinel.evidence.event_files.state import metric_name
from ray_sentinel.store.event_folder import read_folder
from ray_sentinel.store.event_runs import Folder, Run, runs_of
from ray_sentinel.store.memory import MemorySource

MAX_DEPTH = 6
MAX_TOLD = 8
"""Runs left out that are named, the newest."""


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
    """The ``tb_*`` series of some event files, and the configuration that was written to them."""

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.config: dict[str, str] = {}

    def span(self) -> tuple[float, float] | None:
        """First and last value; the last one counts for a usual step, so that no cell cuts it."""
        span = super().span()
        if span is None:
            return None
        gaps = [np.diff(one.times) for one in self.samples(Selector("tb_step"), -np.inf, np.inf)]
        known = np.concatenate([np.empty(0), *gaps])
        return span[0], span[1] + (float(np.median(known)) if known.size else 0.0)


def load_events(
    files: list[Path], host: str = "", within: tuple[float, float] | None = None
) -> EventFilesSource:
    """All scalars of some event files as ``tb_*`` series, with ``tb_step``.

    Of several training runs the newest is taken (of those that have values in ``within``, in Unix
    seconds, where there are such), and what was left out is said in the notes. Its evaluations are
    series of their own. Where files lie in several folders, the label ``run`` is the folder below
    what all have in common. Tags of one folder that make one name have the label ``tag``.
    """
    by_folder: dict[Path, list[Path]] = defaultdict(list)
    for file in files:
        by_folder[file.parent].append(file)
    source = EventFilesSource("event files")
    if not by_folder:
        return source
    folders = [read_folder(path, of_one, source.notes) for path, of_one in by_folder.items()]
    root = Path(os.path.commonpath(list(by_folder)))
    runs = runs_of(folders, root)
    chosen = _newest(runs, within)
    if chosen is not None:
        source.notes += _told(chosen, runs, root)
        runs = [one for one in runs if one is chosen or (not one.trains and _during(one, chosen))]
    taken: set[str] = set()
    for run in runs:
        for (_, role), folder in run.slots.items():
            source.config = {**folder.config, **source.config}
            labels = {"host": host} if host else {}
            if len(by_folder) > 1:
                labels["run"] = os.path.relpath(folder.path, root)
            # Ranks and curves beside a run's main folder tell only what that does not.
            own = evaluates(role) or chosen is None or run is not chosen
            _add_folder(source, folder, labels, set() if own else taken)
            if not own:
                taken |= {"tb_step", *(metric_name(tag) for tag in folder.points)}
    return source


def _newest(runs: list[Run], within: tuple[float, float] | None) -> Run | None:
    """The training run that began last; None where there is none."""
    training = [run for run in runs if run.trains]
    if within is not None:
        training = [
            run for run in training if run.times[0] <= within[1] and run.times[1] >= within[0]
        ] or training
    return training[-1] if training else None


def _during(run: Run, chosen: Run) -> bool:
    return run.times[0] <= chosen.times[1] and run.times[1] >= chosen.times[0]


def _told(chosen: Run, runs: list[Run], root: Path) -> Iterator[str]:
    """What was chosen of several runs and put together, in sentences."""
    others = [run for run in runs if run is not chosen and run.trains]

    def said(path: Path) -> str:
        return str(path.relative_to(root)) if path != root else str(root)

    if others:
        listed = ", ".join(
            f"{said(run.name)} (steps {run.steps[0]:.0f} to {run.steps[1]:.0f})"
            for run in others[-MAX_TOLD:]
        )
        more = f" and {len(others) - MAX_TOLD} earlier ones" if len(others) > MAX_TOLD else ""
        # Files beside the other runs' folders can only be named one by one.
        other = others[-1].name if others[-1].name != root else root / "events.out.tfevents...."
        yield (
            f"{root} holds {len(others) + 1} training runs: {said(chosen.name)}, the newest, is "
            f"taken; left out: {listed}{more}. To take another one, name it: {other}"
        )
    if chosen.parts:
        parts = ", ".join(said(path) for path in chosen.parts)
        yield (
            f"{said(chosen.name)} goes on from steps that {parts} had done: they are one run "
            "that was started again"
        )
    ranks = sorted({rank for rank, _ in chosen.slots if rank >= 0})
    if len(ranks) > 1:
        yield f"{len(ranks)} ranks wrote event files; those of rank {ranks[0]} are taken"


def _add_folder(
    source: MemorySource, folder: Folder, labels: dict[str, str], taken: set[str]
) -> None:
    tags: dict[str, list[str]] = defaultdict(list)
    for tag in folder.points:
        tags[metric_name(tag)].append(tag)
    for name, alike in tags.items():
        if name in taken:
            continue
        for tag in alike:
            told = len(alike) > 1 or name == "tb_step"
            _add(source, name, {**labels, "tag": tag} if told else labels, folder.points[tag])
    if "tb_step" not in taken:
        _add(source, "tb_step", labels, folder.steps)


def _add(
    source: MemorySource, name: str, labels: dict[str, str], points: Iterable[tuple[float, float]]
) -> None:
    # Stable: of values of one moment the later one stays later.
    ordered = sorted(points, key=lambda point: point[0])
    source.add(name, labels, [time for time, _ in ordered], [value for _, value in ordered])


class WithEvents:
    """A source whose ``tb_*`` series come from event files: every step, no gap, no fill."""

    def __init__(self, source: TimeSeries, events: EventFilesSource) -> None:
        self._source, self._events = source, events
        self.config = events.config
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
    events = load_events(files, within=span)
    ours = events.span()
    if ours is None or ours[1] < span[0] or ours[0] > span[1]:
        return source
    return WithEvents(source, events)


def with_config(logs: LogFacts, source: TimeSeries) -> LogFacts:
    """The log's facts, with the parameters that only the event files tell."""
    if not isinstance(source, (EventFilesSource, WithEvents)) or not source.config:
        return logs
    return msgspec.structs.replace(logs, config={**source.config, **logs.config})

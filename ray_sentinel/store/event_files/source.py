"""Scalars of TensorBoard event files, complete and exact: every step of the training series."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np

from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.runs import evaluates
from ray_sentinel.diagnose.series import Grid, Reduce, Samples, Selector, TimeSeries
from ray_sentinel.errors import InputError
from ray_sentinel.evidence.event_files.state import metric_name
from ray_sentinel.store.event_files.choice import choose, describe_choice
from ray_sentinel.store.event_files.find import find_event_files
from ray_sentinel.store.event_files.folder import read_folder
from ray_sentinel.store.event_files.memory import MemorySource
from ray_sentinel.store.event_files.runs import EventFolder, meet, runs_of


class EventFilesSource(MemorySource):
    """The ``tb_*`` series of some event files, and the configuration that was written to them."""

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.config: dict[str, str] = {}

    def span(self) -> tuple[float, float] | None:
        """First and last value; the last one counts for a usual step, so that no cell cuts it
        off."""
        span = super().span()
        if span is None:
            return None
        gaps = [np.diff(one.times) for one in self.samples(Selector("tb_step"), -np.inf, np.inf)]
        known = np.concatenate([np.empty(0), *gaps])
        return span[0], span[1] + (float(np.median(known)) if known.size else 0.0)


def load_events(
    files: list[Path],
    within: tuple[float, float] | None = None,
    run: str = "",
) -> EventFilesSource:
    """All scalars of some event files as ``tb_*`` series, with ``tb_step``.

    Of several training runs the one named ``run`` is used, or else the newest (of those that have
    values in ``within``, in Unix seconds, if there are such); the notes say what was left out. Its
    evaluations are series of their own. If files are in several folders, the label ``run`` is the
    folder below their common one. Tags of one folder that map to one name have the label ``tag``.
    Raises InputError if no run has that name.
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
    chosen = choose(runs, root, within, run)
    if chosen is not None:
        source.notes += describe_choice(chosen, runs, root, named=bool(run))
        during = chosen.times
        runs = [r for r in runs if r is chosen or (not r.trains and meet(r.times, during))]
    taken: set[str] = set()
    for one in runs:
        for (_, role), folder in one.slots.items():
            source.config = {**folder.config, **source.config}
            labels: dict[str, str] = {}
            if len(by_folder) > 1:
                labels["run"] = os.path.relpath(folder.path, root)
            # Ranks and curves beside a run's main folder tell only what that does not.
            own = evaluates(role) or chosen is None or one is not chosen
            _add_folder(source, folder, labels, set() if own else taken)
            if not own:
                taken |= {"tb_step", *(metric_name(tag) for tag in folder.points)}
    return source


def _add_folder(
    source: MemorySource, folder: EventFolder, labels: dict[str, str], taken: set[str]
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
        """As for any source."""
        theirs = (
            name for name in self._source.families() if name != "tb_metrics_plugin_staleness_fill"
        )
        return tuple(sorted({*theirs, *self._ours}))

    def span(self) -> tuple[float, float] | None:
        """As for any source."""
        return self._source.span() or self._events.span()

    def label_sets(self, name: str, start: float, end: float) -> list[dict[str, str]]:
        """As for any source."""
        return self._of(name).label_sets(name, start, end)

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        """As for any source."""
        return self._of(selector.name).samples(selector, start, end)

    def query_range(
        self, selector: Selector, start: float, end: float, step: float, reduce: Reduce = "last"
    ) -> Grid:
        """As for any source."""
        return self._of(selector.name).query_range(selector, start, end, step, reduce)

    def _of(self, name: str) -> TimeSeries:
        return self._events if name in self._ours else self._source


def with_events(source: TimeSeries, folder: Path | None, run: str = "") -> TimeSeries:
    """``source`` with the training series of the event files in ``folder``, if they match.

    Files of another run (whose time lies outside) are ignored. Raises InputError if a named run
    does not exist, or does not match.
    """
    if isinstance(source, EventFilesSource):
        return source
    files = find_event_files(folder) if folder is not None else []
    span = source.span()
    if run and not files:
        where = folder or source.title
        raise InputError(f"{where} holds no event files of which the run {run} could be taken")
    if not files or span is None:
        return source
    events = load_events(files, within=span, run=run)
    ours = events.span()
    if ours is None or ours[1] < span[0] or ours[0] > span[1]:
        if run:
            raise InputError(
                f"the run {run} was written at another time than the series of {source.title}; "
                f"diagnose it alone, by its own folder below {folder}"
            )
        return source
    return WithEvents(source, events)


def with_config(logs: LogFacts, source: TimeSeries) -> LogFacts:
    """The log's facts, with the parameters that only the event files contain."""
    if not isinstance(source, (EventFilesSource, WithEvents)):
        return logs
    return with_parameters(logs, source.config)


def with_parameters(logs: LogFacts, parameters: dict[str, str]) -> LogFacts:
    """The log's facts, with parameters that it does not itself contain."""
    if not parameters:
        return logs
    return msgspec.structs.replace(logs, config={**parameters, **logs.config})

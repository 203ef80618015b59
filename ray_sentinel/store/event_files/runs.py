"""Which folders of event files are one training run: its ranks, evaluations and restarts.

Writers give every run a folder of its own below a shared one: ``runs/exp1`` (torch),
``lightning_logs/version_0``, ``runs/Nov21_03-00-00_host`` (Transformers), ``train`` and
``validation`` (Keras). If all ranks write, they do so in ``rank0`` and the like, and a restarted
job may use a folder of its own for each attempt. Only folders of one run may be combined: values of
different runs have no common mean.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np

from ray_sentinel import regex as re
from ray_sentinel.diagnose.runs import evaluates

Points = list[tuple[float, float]]
"""Pairs of Unix seconds and value, in the order in which they were written."""
Span = tuple[float, float]
"""Begin and end, in Unix seconds."""
Slot = tuple[int, str]
"""The part of a run that a folder holds, as rank and role; the rank is -1 if no folder gives
one."""

_RANK = re.compile(
    r"(?:(.+)[._-])?(?:rank|worker|process|proc|replica|trainer)[_-]?(\d+)", re.IGNORECASE
)
_ATTEMPT = re.compile(r"(?:attempt|restart|retry|try)[_-]?\d+", re.IGNORECASE)
_ROLE = re.compile(r"(?:train|training|val|valid|validation|eval|evaluation|test)", re.IGNORECASE)
LEAST_STEPS = 2
"""Number of different steps that a folder must hold to count as a training."""


def hull(spans: Iterable[Span]) -> Span:
    """The time from the first begin to the last end of some spans, of which there is one at
    least."""
    begins, ends = zip(*spans, strict=True)
    return min(begins), max(ends)


def meet(one: Span, other: Span) -> bool:
    """Whether two spans have a moment in common."""
    return one[0] <= other[1] and one[1] >= other[0]


class EventFolder(msgspec.Struct):
    """The scalars of one folder of event files, or of several that were combined."""

    path: Path
    points: dict[str, Points] = {}
    steps: Points = []
    config: dict[str, str] = {}
    """Parameters that were written as texts."""

    @property
    def times(self) -> Span:
        """Unix seconds of the first and the last value."""
        return hull((one[0][0], one[-1][0]) for one in self.points.values() if one)

    @property
    def trains(self) -> bool:
        """Whether its steps advance."""
        return len({step for _, step in self.steps}) >= LEAST_STEPS


class EventRun(msgspec.Struct):
    """One run: ``slots`` in order of precedence, ``name`` its folder."""

    name: Path
    slots: dict[Slot, EventFolder]
    parts: list[Path] = []
    """Folders of the earlier runs that this run continues."""

    @property
    def main(self) -> EventFolder:
        """The folder whose steps are the training's."""
        training = [one for one in self.slots.values() if one.trains]
        return next(iter(training or self.slots.values()))

    @property
    def trains(self) -> bool:
        """Whether it holds more than evaluations."""
        return any(one.trains and not evaluates(slot[1]) for slot, one in self.slots.items())

    @property
    def times(self) -> Span:
        """Unix seconds of the first and the last value."""
        return hull(one.times for one in self.slots.values())

    @property
    def steps(self) -> tuple[float, float]:
        """Lowest and highest step."""
        steps = [step for _, step in self.main.steps]
        return min(steps), max(steps)


def runs_of(folders: Sequence[EventFolder], root: Path) -> list[EventRun]:
    """The runs below ``root``, the earliest first; folders without values belong to none."""
    groups: dict[Path, list[tuple[Slot, EventFolder]]] = defaultdict(list)
    for folder in folders:
        if any(folder.points.values()):
            name, slot = _place(folder.path, root)
            groups[name].append((slot, folder))
    runs = [run for name, placed in groups.items() for run in _runs(name, placed)]
    runs.sort(key=lambda run: (run.times[0], str(run.name)))
    return _continued(_nested(runs))


def _place(path: Path, root: Path) -> tuple[Path, Slot]:
    """The run's folder, and which part of the run this folder holds."""
    name, rank, role = root, -1, ""
    for part in path.relative_to(root).parts:
        if found := _RANK.fullmatch(part):
            rank = int(found[2])
            name = name / found[1] if found[1] else name
        elif _ROLE.fullmatch(part):
            role = part
        elif not _ATTEMPT.fullmatch(part):
            name = name / part
    # What lies above the root names the job, not this folder's part in it.
    named = "eval" if path != root and evaluates(path.name) else ""
    return name, (rank, role or named)


def _runs(name: Path, placed: Sequence[tuple[Slot, EventFolder]]) -> list[EventRun]:
    """One run, or each folder as its own where they cannot be ranks or attempts of one."""
    slots: dict[Slot, list[EventFolder]] = defaultdict(list)
    for slot, folder in placed:
        slots[slot].append(folder)
    if any(_overlap(one) for one in slots.values()) or not _ranks(slots):
        return [
            EventRun(folder.path, {(-1, "eval" if evaluates(slot[1]) else ""): folder})
            for slot, folder in placed
        ]
    return [EventRun(name, _in_order({slot: _joined(one) for slot, one in slots.items()}))]


def _in_order(slots: Mapping[Slot, EventFolder]) -> dict[Slot, EventFolder]:
    """By rank and role, evaluations last."""
    return {slot: slots[slot] for slot in sorted(slots, key=lambda one: (evaluates(one[1]), one))}


def _overlap(folders: Sequence[EventFolder]) -> bool:
    spans = sorted(folder.times for folder in folders)
    return any(later[0] < earlier[1] for earlier, later in pairwise(spans))


def _ranks(slots: Mapping[Slot, Sequence[EventFolder]]) -> bool:
    """Ranks are numbered without holes or from 0 or 1, and run at the same time as the lowest.

    Folders for 8, 16 and 32, or such that were written in turn, are something else.
    """
    ranks = sorted({rank for rank, _ in slots if rank >= 0})
    if len(ranks) < 2:
        return True
    if ranks[0] > 1 and ranks[-1] - ranks[0] + 1 != len(ranks):
        return False
    spans = {rank: hull(folder.times for folder in of) for (rank, _), of in slots.items()}
    return all(meet(spans[rank], spans[ranks[0]]) for rank in ranks)


def _joined(folders: Iterable[EventFolder]) -> EventFolder:
    """What several folders hold, one after the other; named by the last."""
    ordered = sorted(folders, key=lambda folder: folder.times)
    points: dict[str, Points] = defaultdict(list)
    for folder in ordered:
        for tag, values in folder.points.items():
            points[tag] += values
    steps = [pair for folder in ordered for pair in folder.steps]
    config = {name: value for folder in ordered for name, value in folder.config.items()}
    return EventFolder(ordered[-1].path, dict(points), steps, config)


def _nested(runs: list[EventRun]) -> list[EventRun]:
    """Folders that a run made below its own while it ran belong to it: ``add_scalars`` makes one
    for each of its curves."""
    kept: list[EventRun] = []
    for run in sorted(runs, key=lambda run: len(run.name.parts)):
        above = run.name.parents
        outer = [one for one in kept if one.name in above and one.trains]
        outer = [one for one in outer if meet(run.times, one.times)]
        if not outer:
            kept.append(run)
            continue
        for (rank, role), folder in run.slots.items():
            part = run.name.relative_to(outer[0].name) / role
            outer[0].slots[rank, str(part)] = folder
    return sorted(kept, key=lambda run: (run.times[0], str(run.name)))


def _continued(runs: list[EventRun]) -> list[EventRun]:
    """Runs that go on where an earlier one was, put together with it."""
    found: list[EventRun] = []
    for run in runs:
        before = None
        if run.trains and _restored(run):  # most are not, and each comparison goes over all steps
            before = next((one for one in reversed(found) if goes_on(one, run)), None)
        found.append(run if before is None else _after(before, run))
    going = {part for run in found for part in run.parts}
    return [run for run in found if run.name not in going]


def _restored(run: EventRun) -> bool:
    """Whether a run does not begin at its own first steps.

    The first step that is logged is as far from 0 as the next one from it.
    """
    return run.main.steps[0][1] > 2 * _rise(run)


def _rise(run: EventRun) -> float:
    return float(np.median(np.diff(sorted({step for _, step in run.main.steps}))))


def goes_on(earlier: EventRun, later: EventRun) -> bool:
    """Whether a run was restored from what another one had reached.

    It began after the other's end, not at its own first steps, and no later than one step after the
    other's last.
    """
    if not earlier.trains or not later.trains or later.times[0] < earlier.times[1]:
        return False
    first, rise = later.main.steps[0][1], _rise(later)
    begins, reached = earlier.steps
    return _restored(later) and begins + rise < first <= reached + 1.5 * rise


def _after(earlier: EventRun, later: EventRun) -> EventRun:
    slots = dict(later.slots)
    for slot, folder in earlier.slots.items():
        slots[slot] = _joined([folder, slots[slot]]) if slot in slots else folder
    return EventRun(later.name, _in_order(slots), [*earlier.parts, earlier.name])

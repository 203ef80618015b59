"""One folder of event files read whole: its files are attempts of one run, one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ray_sentinel.evidence.event_files.events import EventRecord
from ray_sentinel.evidence.event_files.state import MAX_TAGS, RunState
from ray_sentinel.store.event_config import parameters
from ray_sentinel.store.event_hparams import read_hparams
from ray_sentinel.store.event_records import read_events
from ray_sentinel.store.event_runs import EventFolder, Points
from ray_sentinel.store.event_times import settled

MAX_TIME = 1e11
"""Unix seconds; a time beyond is none."""
LEAST_POINTS = 3
"""Values from which two files can be told to have been written at the same time."""


def read_folder(path: Path, files: list[Path], notes: list[str]) -> EventFolder:
    """All scalars of the files in a folder; what was lost or left out is said in ``notes``."""
    state = RunState()
    folder = EventFolder(path, {}, [], {})
    timeless = 0
    doubled: set[str] = set()
    for file in files:
        points: dict[str, Points] = defaultdict(list)
        reached: dict[str, list[int]] = defaultdict(list)
        steps: Points = []
        for event in read_events(file, notes):
            for tag, text in event.texts:
                folder.config.update(parameters(tag, text))
            if event.scalars and not 0 < event.wall_time < MAX_TIME:
                timeless += 1
                continue
            _take(event, state, points, reached, steps)
        if moved := _settle(points, reached, steps):
            notes.append(
                f"{moved} values in {file} have times that the rest of it contradicts, as where a "
                "clock was set; they are placed by the order in which they were written"
            )
        if _add(folder, points, steps):
            doubled.add(file.name)
    for name, value in read_hparams(path, notes).items():
        folder.config.setdefault(name, value)
    if timeless:
        notes.append(f"{timeless} events in {path} have no time; left out")
    if state.too_many:
        notes.append(f"{path} holds more than {MAX_TAGS} tags; later ones are not read")
    if doubled:
        notes.append(
            f"{len(doubled)} files in {path} were written at the same time as others with the same "
            f"tags, as by ranks that share a folder; those tags of them are left out: "
            f"{', '.join(sorted(doubled)[:3])}"
        )
    return folder


def _take(
    event: EventRecord,
    state: RunState,
    points: dict[str, Points],
    reached: dict[str, list[int]],
    steps: Points,
) -> None:
    taken = state.take(event)
    for tag, value in taken:
        points[tag].append((event.wall_time, value))
        reached[tag].append(event.step)
    # Of the tag that is written most often: evaluations may be counted in epochs.
    step = state.step if taken else None
    if step is not None and (not steps or steps[-1][1] != step):
        steps.append((event.wall_time, float(step)))


def _settle(points: dict[str, Points], reached: dict[str, list[int]], steps: Points) -> int:
    """Put the times of a file's values right; of how many that had to be done."""
    if not points:
        return 0
    middle = float(np.median([time for values in points.values() for time, _ in values]))
    moved = sum(_placed(values, reached[tag], middle) for tag, values in points.items())
    _placed(steps, [step for _, step in steps], middle)
    return moved


def _placed(values: Points, steps: Sequence[float], middle: float) -> int:
    times = np.array([time for time, _ in values])
    right = settled(times, np.array(steps, dtype=float), middle)
    off = np.flatnonzero(right != times)
    for place in off:
        values[place] = (float(right[place]), values[place][1])
    return int(off.size)


def _add(folder: EventFolder, points: dict[str, Points], steps: Points) -> bool:
    """Add a file's values; whether some were left out because another file has them."""
    doubled = {tag for tag, values in points.items() if _beside(folder.points.get(tag), values)}
    for tag, values in points.items():
        if tag not in doubled:
            folder.points.setdefault(tag, []).extend(values)
    if not doubled:
        folder.steps.extend(steps)
    return bool(doubled)


def _beside(known: Points | None, values: Points) -> bool:
    """Whether two files' values of one tag were written side by side: the span of one covers more
    than half of the other's. (A process that lingers overlaps its successor but shortly.)"""
    if not known or len(values) < LEAST_POINTS or len(known) < LEAST_POINTS:
        return False
    common = min(known[-1][0], values[-1][0]) - max(known[0][0], values[0][0])
    return common > 0.5 * min(known[-1][0] - known[0][0], values[-1][0] - values[0][0])

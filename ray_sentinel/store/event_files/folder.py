"""One folder of event files, read as a whole: its files are successive attempts of one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ray_sentinel.clock import LATEST
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.evidence.event_files.events import EventRecord
from ray_sentinel.evidence.event_files.state import MAX_TAGS, RunState
from ray_sentinel.store.event_files.config import parameters
from ray_sentinel.store.event_files.hparams import read_hparams
from ray_sentinel.store.event_files.records import read_events
from ray_sentinel.store.event_files.runs import EventFolder, Points

# The times of an event file's values, put right where the rest of the file contradicts them.
#
# Clocks are set while a job runs, and begin in 1970 on machines without a battery. Within a file
# the order of writing and the steps are the truth: a value whose step is higher was not written
# earlier.

AWAY_SECONDS = 365 * 86400.0
"""Seconds from the middle of its file beyond which a value was stamped by a wrong clock: no job
pauses that long."""
JITTER_SECONDS = 1.0
"""Seconds by which the times of threads that write together may be out of order."""
FEW = 3
"""Most values in a row (``FEW_SHARE`` is the same as a share of all) that count as stamped by a
clock that was wrong for a moment; if there are more, the clock was set for good."""
FEW_SHARE = 0.01


def settled(times: Floats, steps: Floats, middle: float) -> Floats:
    """The times (N,) of one tag's values in the order of writing; ``middle`` is the file's.

    If a clock was set back, what was written before that is moved back with it: the later clock is
    the corrected one. A time that only few values have is put between its neighbours.
    """
    out = np.where(np.abs(times - middle) < AWAY_SECONDS, times, np.nan)
    for place in np.flatnonzero((np.diff(times) < -JITTER_SECONDS) & (np.diff(steps) > 0)) + 1:
        _turn(out, int(place))
    known = np.flatnonzero(np.isfinite(out))
    if not known.size:
        return np.full(times.size, middle)
    places = np.arange(times.size)
    # Before the first and after the last known one at the usual distance.
    beyond = np.minimum(places - known[0], 0) + np.maximum(places - known[-1], 0)
    return np.asarray(np.interp(places, known, out[known]) + _usual(out[known]) * beyond)


def _turn(times: Floats, place: int) -> None:
    """Put right that the clock goes back from the value before ``place``, in place."""
    before, after = times[:place], times[place:]
    if not (np.isfinite(before[-1]) and np.isfinite(after[0])):
        return
    back = float(before[-1] - after[0])
    if back <= JITTER_SECONDS:
        return
    ahead = _run(before[::-1] > after[0])
    behind = _run(after < before[-1])
    if min(ahead, behind) > max(FEW, FEW_SHARE * times.size):
        before -= back + _usual(times)
    elif ahead <= behind:
        before[place - ahead :] = np.nan
    else:
        after[:behind] = np.nan


def _usual(times: Floats) -> float:
    """The usual distance of two values."""
    gaps = np.diff(times)
    gaps = gaps[gaps >= 0]
    return float(np.median(gaps)) if gaps.size else 0.0


def _run(flags: Bools) -> int:
    """How many flags are True from the start on."""
    off = np.flatnonzero(~flags)
    return int(off[0]) if off.size else flags.size


LEAST_POINTS = 3
"""Fewest values from which one can see that two files were written at the same time."""


def read_folder(path: Path, files: list[Path], notes: list[str]) -> EventFolder:
    """All scalars in the files of a folder; ``notes`` say what was lost or left out."""
    state = RunState()
    folder = EventFolder(path)
    timeless = 0
    doubled: set[str] = set()
    for file in files:
        points: dict[str, Points] = defaultdict(list)
        reached: dict[str, list[int]] = defaultdict(list)
        steps: Points = []
        for event in read_events(file, notes):
            for tag, text in event.texts:
                folder.config.update(parameters(tag, text))
            if event.scalars and not 0 < event.wall_time < LATEST:
                timeless += 1
                continue
            _add_event(event, state, points, reached, steps)
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


def _add_event(
    event: EventRecord,
    state: RunState,
    points: dict[str, Points],
    reached: dict[str, list[int]],
    steps: Points,
) -> None:
    taken = state.add(event)
    for tag, value in taken:
        points[tag].append((event.wall_time, value))
        reached[tag].append(event.step)
    # Of the tag that is written most often: evaluations may be counted in epochs.
    step = state.step if taken else None
    if step is not None and (not steps or steps[-1][1] != step):
        steps.append((event.wall_time, float(step)))


def _settle(points: dict[str, Points], reached: dict[str, list[int]], steps: Points) -> int:
    """Correct the times of a file's values; returns how many were corrected."""
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

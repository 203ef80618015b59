"""One run: a folder of event files, what was read from it, and how long that is handed on."""

from __future__ import annotations

import math
import time
from collections import deque
from pathlib import Path

import msgspec

from ray_sentinel.evidence.event_files.events import EventRecord
from ray_sentinel.evidence.event_files.state import RunState
from ray_sentinel_plugins._event_files.follow import FollowedFile, FollowedFolder
from ray_sentinel_plugins._files import Files, clean

MAX_POINTS = 50_000
"""Most values that are handed on at one time; beyond that, files are read on when there is room
again."""
LEAST_SECONDS = 20.0
"""Shortest time in seconds for which a value is handed on, so that several scrapes see it."""
SETTLED_SECONDS = 90.0
"""Seconds for which a value is handed on if there is room, so that a Prometheus that scrapes rarely
gets it too. One that gets a value again, with the same time, keeps it once."""
HOLD_SECONDS = 660.0
"""Seconds for which a value is held while nobody scrapes: ten minutes without a Prometheus lose
nothing. If there is no more room, the files are read on when there is."""
START_SECONDS = 120.0
"""Seconds in which a first Prometheus may come; after that, if none has come and there is no more
room, none is waited for."""
OLDEST_SECONDS = 30 * 86400.0 - 3600.0
"""Greatest age in seconds of a sample that Prometheus accepts by the configuration that we make for
it; a single older sample fails the whole scrape."""
MAX_TIME = 1e11
"""Latest valid time in Unix seconds; a value with a later one is ignored."""

Labels = tuple[tuple[str, str], ...]


class FileAuthor(msgspec.Struct, frozen=True):
    """Who wrote an event file: the process's number, in the order in which they began, and its
    host, if the file's name gives it. The host is part of the series, so that they stay the same
    whichever agent reads."""

    attempt: int
    host: str = ""

    @property
    def labels(self) -> Labels:
        """The labels that distinguish its values from other writers'."""
        attempt = ("attempt", str(self.attempt))
        return (("host", clean(self.host.split(".")[0])), attempt) if self.host else (attempt,)


class EventFileRun:
    """One folder of event files and what was read from it."""

    def __init__(self, folder: Path, begun: float = 0.0) -> None:
        self.followed = FollowedFolder(folder)
        self.state = RunState()
        self.points: list[tuple[str, float, float, FileAuthor]] = []
        """(Tag, value, Unix seconds, writer) of each value that is handed on."""
        self.steps: list[tuple[int, float, FileAuthor]] = []
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
        """Read what is new, until the monotonic moment; what cannot be read is logged."""
        try:
            self.followed.scan()
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
        writer = FileAuthor(file.attempt, file.host)
        while time.monotonic() < until and len(self.points) < MAX_POINTS and not file.caught_up:
            oldest = time.time() - OLDEST_SECONDS
            for event in file.read():
                self._add(event, writer, oldest if history else math.inf)

    def _add(self, event: EventRecord, writer: FileAuthor, oldest: float) -> None:
        taken = self.state.add(event)
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

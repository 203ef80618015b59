"""What ranks report about their training over time: scalars, step times, and when they saved."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import msgspec

from ray_sentinel.engine.jobs import JobKey, JobView
from ray_sentinel.model.progress import Progress
from ray_sentinel.model.samples import Floats

KEPT = 240
"""Least values of one track that are kept; at most twice as many are."""
LEAST = 12
"""Fewest values before the judged ones that make a usual level."""
SAVING = "checkpoint"
KEPT_SAVES = 8
"""Number of the last saves of a job that are remembered."""


class Track(msgspec.Struct):
    """The last values of one quantity, one for each step that was seen."""

    values: Floats = msgspec.field(default_factory=Floats)
    at: float = 0.0
    """When there last was any value."""
    step: int = -1
    best: float | None = None

    def add(self, value: float) -> None:
        """Append a value."""
        self.values.append(value)
        if len(self.values) > 2 * KEPT:
            del self.values[:KEPT]


class Scalars(msgspec.Struct):
    """The scalars of all jobs. Only the engine changes it."""

    tracks: dict[tuple[JobKey, int, str], Track] = {}
    """Tracks by job, rank and name. Only the lowest rank of a job that reports a scalar has one: it
    speaks for the others, which nobody reads, and which are thousands."""
    steps: dict[JobKey, Track] = {}
    saves: dict[JobKey, list[float]] = {}
    """When each job last saved, eight times at most."""
    saving: set[JobKey] = set()
    apart: dict[JobKey, float] = {}
    """When each job was last seen to do anything but train."""

    def update(self, jobs: Iterable[JobView], now: float) -> None:
        """Read the current values from the ranks' records."""
        known = set()
        lowest = {(job, name): rank for job, rank, name in self.tracks}
        for job in jobs:
            known.add(job.key)
            # A job that has not taken a step yet is still starting up, declared or not.
            if job.protected_phase(now) or not job.training():
                self.apart[job.key] = now
            self._add_saves(job, now)
            self._add_steps(job, now)
            for view in job.live:
                if view.progress is not None:
                    self._add(job.key, view.rank.id.rank, view.progress, lowest, now)
        self._forget_all_but(known)

    def _forget_all_but(self, known: set[JobKey]) -> None:
        self.tracks = {key: track for key, track in self.tracks.items() if key[0] in known}
        self.saving &= known
        for of_jobs in (self.steps, self.saves, self.apart):
            for key in of_jobs.keys() - known:
                del of_jobs[key]

    def apart_lately(self, job: JobView, now: float, seconds: float) -> bool:
        """Whether the job was starting up, saving, evaluating or the like within the last
        ``seconds``."""
        return now - self.apart.get(job.key, -seconds) < seconds

    def _add(
        self,
        job: JobKey,
        rank: int,
        progress: Progress,
        lowest: dict[tuple[JobKey, str], int],
        now: float,
    ) -> None:
        """Record what the rank reports, where no lower one reports it; updates ``lowest``."""
        for name, value in progress.scalars.items():
            speaks = lowest.setdefault((job, name), rank)
            if rank > speaks:
                continue
            if rank < speaks:
                del self.tracks[job, speaks, name]
                lowest[job, name] = rank
            track = self.tracks.setdefault((job, rank, name), Track())
            track.at = now
            if progress.steps_recorded != track.step:
                track.step = progress.steps_recorded
                track.add(value)

    def _add_steps(self, job: JobView, now: float) -> None:
        """Record the median duration of the ranks' last steps, without steps that contain a
        save."""
        if job.protected_phase(now):
            return
        recent = [
            statistics.median(view.progress.recent_step_seconds[-8:])
            for view in job.live
            if view.progress is not None and len(view.progress.recent_step_seconds) >= 8
        ]
        step = job.step if job.step is not None else -1
        track = self.steps.setdefault(job.key, Track())
        if recent and step != track.step:
            track.step = step
            track.add(statistics.median(recent))
            if len(track.values) >= 2 * LEAST:
                kept = statistics.median(track.values[-LEAST:])
                track.best = kept if track.best is None else min(track.best, kept)

    def _add_saves(self, job: JobView, now: float) -> None:
        saving = any(view.phase == SAVING for view in job.live)
        if saving and job.key not in self.saving:
            saves = self.saves.setdefault(job.key, [])
            saves.append(now)
            del saves[:-KEPT_SAVES]
        (self.saving.add if saving else self.saving.discard)(job.key)

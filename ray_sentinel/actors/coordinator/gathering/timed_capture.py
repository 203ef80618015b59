"""``capture.wait_seconds``: captures a job once, that long after it was first seen."""

from __future__ import annotations

from collections.abc import Iterable

from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus

WHY = "capture.wait_seconds has passed"


def is_timed(incident: Incident) -> bool:
    """Whether it is the capture after a fixed time."""
    return incident.kind == "asked" and WHY in incident.summary


class TimedCapture:
    """Determines which jobs are due. ``wait_seconds`` of 0 is off."""

    def __init__(self, wait_seconds: float) -> None:
        self._wait = wait_seconds
        self.seen: dict[tuple[str, int], float] = {}
        self.done: set[tuple[str, int]] = set()

    @property
    def wanted(self) -> bool:
        """Whether it is enabled."""
        return self._wait > 0

    def due(
        self, jobs: Iterable[JobStatus], incidents: Iterable[Incident], now: float
    ) -> list[str]:
        """Jobs whose time has come, each attempt once.

        ``incidents`` include an earlier coordinator's captures, so that its successor does not
        repeat them.
        """
        for incident in incidents:
            if is_timed(incident):
                self.done.add((incident.job, incident.attempt))
        found = []
        jobs = tuple(jobs)
        known = {(job.job, job.attempt) for job in jobs}
        self.done &= known
        self.seen = {key: begun for key, begun in self.seen.items() if key in known}
        for job in jobs:
            key = (job.job, job.attempt)
            begun = self.seen.setdefault(key, now)
            if key not in self.done and not job.ended and now - begun >= self._wait:
                self.done.add(key)
                found.append(job.job)
        return found

"""The lanes of all jobs, as the page draws them and ``export perfetto`` writes them."""

from __future__ import annotations

from itertools import islice
from typing import Literal, NamedTuple

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.last_hour.lanes import HOUR, MOST_NAME, Lanes, Stretch, role_of
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.model.last_hour import JobLanes, LanesReport

MOST_JOBS = 6
"""Most jobs in a report: those that moved last."""


class LanesPicture:
    """What the lanes of all jobs are made of at one moment, which no later event changes. The
    report is made of it while the engine goes on."""

    def __init__(self, view: ClusterView, now: float) -> None:
        self._begin, self._end = now - HOUR, now
        seen = (_seen(view, job, self._begin, now) for job in view.by_movement())
        self._jobs = list(islice(filter(None, seen), MOST_JOBS))

    def report(self) -> LanesReport:
        """The last hour of the jobs."""
        jobs = tuple(job.drawn(self._begin) for job in self._jobs)
        return LanesReport(begin=self._begin, end=self._end, jobs=jobs)


class _JobSeen(NamedTuple):
    """One of the jobs, of which there is something to draw."""

    name: str
    attempt: int
    of: Literal["ranks", "roles"]
    lanes: Lanes
    running: dict[str, list[Stretch]]
    """What goes on now, by role."""
    hosts: dict[str, str]
    """The hosts of nodes that have a lane."""

    def drawn(self, begin: float) -> JobLanes:
        kinds, lanes = self.lanes.drawn(
            begin, self.running, lambda node: self.hosts.get(node, node)
        )
        return JobLanes(job=self.name, attempt=self.attempt, of=self.of, kinds=kinds, lanes=lanes)


def _seen(
    view: ClusterView, job: JobView | RayJobView, begin: float, now: float
) -> _JobSeen | None:
    """The job; None if there is nothing to draw."""
    running = {} if isinstance(job, JobView) else _running(view, job, now)
    if not running and not job.lanes.touches(begin):
        return None
    lanes = job.lanes.copied()
    if isinstance(job, JobView):
        hosts = {name: view.host_of(name) for name in lanes.lanes}
        return _JobSeen(job.job, job.attempt, "ranks", lanes, running, hosts)
    return _JobSeen(job.name, 0, "roles", lanes, running, {})


def _running(view: ClusterView, job: RayJobView, now: float) -> dict[str, list[Stretch]]:
    since: dict[str, float] = {}
    for _, track in view.ray.actors_of(job):
        if track is not None and "." in track.runs:
            since[track.runs] = min(track.since, since.get(track.runs, now))
    running: dict[str, list[Stretch]] = {}
    for runs, begun in since.items():
        method = runs[:MOST_NAME]
        running.setdefault(role_of(method), []).append(Stretch(method, begun, now))
    return running

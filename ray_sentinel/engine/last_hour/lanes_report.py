"""The lanes of all jobs, as the page draws them and ``export perfetto`` writes them."""

from __future__ import annotations

from itertools import islice

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.last_hour.lanes import HOUR, MOST_NAME, Stretch, role_of
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.model.lanes import JobLanes, LanesReport

MOST_JOBS = 6
"""Most jobs in a report: those that moved last."""


def lanes_report(view: ClusterView, now: float) -> LanesReport:
    """The last hour of the jobs that moved most recently."""
    begin = now - HOUR
    moved: list[tuple[float, JobView | RayJobView]] = [
        *((job.last_moved, job) for job in view.jobs.values() if not job.ray_job),
        *((job.changed_at, job) for job in view.ray.jobs.values()),
    ]
    moved.sort(key=lambda pair: -pair[0])
    drawn = (_drawn(view, job, begin, now) for _, job in moved)
    told = islice((job for job in drawn if job.lanes), MOST_JOBS)
    return LanesReport(begin=begin, end=now, jobs=tuple(told))


def _drawn(view: ClusterView, job: JobView | RayJobView, begin: float, now: float) -> JobLanes:
    if isinstance(job, JobView):
        kinds, lanes = job.lanes.drawn(begin, {}, view.host_of)
        return JobLanes(job=job.job, attempt=job.attempt, of="ranks", kinds=kinds, lanes=lanes)
    since: dict[str, float] = {}
    for _, track in view.ray.actors_of(job):
        if track is not None and "." in track.runs:
            since[track.runs] = min(track.since, since.get(track.runs, now))
    running: dict[str, list[Stretch]] = {}
    for runs, begun in since.items():
        method = runs[:MOST_NAME]
        running.setdefault(role_of(method), []).append(Stretch(method, begun, now))
    kinds, lanes = job.lanes.drawn(begin, running)
    return JobLanes(job=job.name, attempt=0, of="roles", kinds=kinds, lanes=lanes)

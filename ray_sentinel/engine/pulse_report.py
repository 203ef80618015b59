"""The pulse of all jobs, as the page draws it."""

from __future__ import annotations

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.pulse import PLACES, WIDTH
from ray_sentinel.engine.ray_job_view import RayJobView
from ray_sentinel.model.pulse import JobPulse, PulseReport

MOST_JOBS = 12
"""Those that moved last."""


def pulse_report(view: ClusterView, now: float) -> PulseReport:
    """The last hour of the jobs that moved last. The others are not drawn: who asks holds up the
    engine meanwhile."""
    first = int(now // WIDTH) - PLACES + 1
    moved: list[tuple[float, JobView | RayJobView]] = [
        # One of a Ray job is a record of incidents; the job itself follows.
        *((job.last_moved, job) for job in view.jobs.values() if not job.ray_job),
        *((job.changed_at, job) for job in view.ray.jobs.values() if job.pulse.moved_since(first)),
    ]
    moved.sort(key=lambda pair: -pair[0])
    return PulseReport(
        begin=first * WIDTH,
        width=WIDTH,
        places=PLACES,
        jobs=tuple(_drawn(job, first) for _, job in moved[:MOST_JOBS]),
    )


def _drawn(job: JobView | RayJobView, first: int) -> JobPulse:
    lanes = job.pulse.shown_lanes(first)
    if isinstance(job, RayJobView):
        return JobPulse(job=job.name, attempt=0, counts="calls", lanes=lanes)
    living = [rank.rank.process for rank in job.live]
    return JobPulse(
        job=job.job,
        attempt=job.attempt,
        counts="steps",
        lanes=lanes,
        phases=job.pulse.shown_phases(first * WIDTH, job.phases, living),
    )

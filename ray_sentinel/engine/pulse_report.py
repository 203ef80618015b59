"""The pulse of all jobs, as the page draws it."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.pulse import PLACES, WIDTH
from ray_sentinel.model.pulse import JobPulse, PulseReport

MOST_JOBS = 12
"""Those that moved last."""


def pulse_report(view: ClusterView, now: float) -> PulseReport:
    """The last hour of the jobs that moved last."""
    first = int(now // WIDTH) - PLACES + 1
    jobs = sorted(_jobs(view, first), key=lambda pair: -pair[0])
    return PulseReport(
        begin=first * WIDTH,
        width=WIDTH,
        places=PLACES,
        jobs=tuple(job for _, job in jobs[:MOST_JOBS]),
    )


def _jobs(view: ClusterView, first: int) -> Iterator[tuple[float, JobPulse]]:
    """(When it moved last, its pulse) of each."""
    since = first * WIDTH
    for job in view.jobs.values():
        if job.ray_job:
            continue  # a record of incidents; the job itself follows
        living = [rank.rank.process for rank in job.live]
        yield (
            job.last_moved,
            JobPulse(
                job=job.job,
                attempt=job.attempt,
                counts="steps",
                lanes=job.pulse.shown_lanes(first),
                phases=job.pulse.shown_phases(since, job.phases, living),
            ),
        )
    for ray_job in view.ray.jobs.values():
        if lanes := ray_job.pulse.shown_lanes(first):
            pulse = JobPulse(job=ray_job.name, attempt=0, counts="calls", lanes=lanes)
            yield ray_job.changed_at, pulse

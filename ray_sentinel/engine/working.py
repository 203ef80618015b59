"""Whether a job is at work, so that its levels mean something."""

from __future__ import annotations

from ray_sentinel.engine.jobs import JobView

LEAST_QUIET = 5.0
"""Seconds for which a job with short steps may be silent."""


def at_work(job: JobView, now: float) -> bool:
    """It trains, gets on, and is in no phase of another kind."""
    if not job.live or not job.training() or job.protected_phase(now):
        return False
    return job.silence(now) <= max(LEAST_QUIET, 2.0 * (job.pace.usual or 0.0))

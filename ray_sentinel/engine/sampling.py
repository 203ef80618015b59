"""Which ranks are looked at without a case, because they say nothing of themselves."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.model.identity import Rank

QUIET_SECONDS = 1.8
MOST_QUIET_LOOKS = 4
"""Looks at a job that does nothing are few: the case that follows takes its own."""


def routine_samples(
    view: ClusterView, busy: set[tuple[str, int]], now: float
) -> Iterator[tuple[JobView, tuple[Rank, ...]]]:
    """Jobs without step counts that have gone quiet: a look at their stacks is due.

    A main thread that polls a device burns a CPU whether the job gets on or not; only another
    stack shows that it moves. Ranks that count steps need no look.
    """
    for job in view.jobs.values():
        if job.key in busy or job.counts_steps or not job.live or not job.training():
            continue
        silence = job.silence(now)
        if silence < QUIET_SECONDS:
            continue
        polling = any(rank.spinning for rank in job.live)
        if polling or silence < QUIET_SECONDS + 1.3 * MOST_QUIET_LOOKS:
            yield job, tuple(rank.rank for rank in job.live)

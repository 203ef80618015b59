"""Which ranks are looked at without a case, because they say nothing of themselves."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.model.identity import Rank

LEAST_QUIET = 1.2
LOOK_EVERY = 1.2
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
        quiet = 0.5 * job.brisk(2 * LEAST_QUIET)
        if silence < quiet:
            continue
        if job.works_apart() or silence < quiet + LOOK_EVERY * MOST_QUIET_LOOKS:
            yield job, tuple(rank.rank for rank in job.live)

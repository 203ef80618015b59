"""Routine stack samples of ranks that report no progress, without a case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ray_sentinel.engine.activities import has_nothing_to_do
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.model.identity import Rank

LEAST_QUIET = 1.2
LOOK_EVERY = 1.2
HOLDER_EVERY = 0.4
HOLDER_LOOKS = 3
"""How many times each rank that may hold the GIL is sampled, alone and more often: the holder may
be in C, or in a loop, and scattered looks tell which."""
JOIN_EVERY = 2.0
"""Seconds between looks at ranks that may be waiting for others to join and seem to work; longer
after a while."""
JOIN_SHARE = 0.25
JOIN_SELDOM = 30.0
IDLE_EVERY = 20.0
"""Seconds between looks at an idle job, whose new work may show only in its stacks."""
MOST_QUIET_LOOKS = 4
"""Most samples of a silent job's stacks; the case that follows takes its own."""


class SamplingRequest(NamedTuple):
    """Whose stacks to sample, and how often, if ``every`` seconds have passed since the last
    time."""

    job: JobView
    ranks: tuple[Rank, ...]
    every: float
    looks: int = 1


def routine_samples(
    view: ClusterView, busy: set[tuple[str, int]], now: float
) -> Iterator[SamplingRequest]:
    """The samples that are due in jobs without step counts that have gone quiet.

    A main thread that polls a device burns a CPU whether or not the job makes progress; only
    another stack shows that it moves. Ranks that count steps need no look.
    """
    for job in view.jobs.values():
        if job.key in busy or job.counts_steps or not job.live:
            continue
        if job.may_join():
            every = min(JOIN_SELDOM, max(JOIN_EVERY, JOIN_SHARE * (now - job.first_seen)))
            yield SamplingRequest(job, tuple(rank.rank for rank in job.live), every)
            continue
        if has_nothing_to_do(job):
            yield SamplingRequest(job, tuple(rank.rank for rank in job.live), IDLE_EVERY)
            continue
        if not job.training():
            continue
        silence = job.silence(now)
        quiet = 0.5 * job.short_timeout(2 * LEAST_QUIET)
        if silence < quiet:
            continue
        holders = tuple(rank.rank for rank in job.live if _may_keep_gil(rank))
        if holders and silence < quiet + LOOK_EVERY * MOST_QUIET_LOOKS:
            yield SamplingRequest(job, holders, HOLDER_EVERY, HOLDER_LOOKS)
        elif job.works_apart() or silence < quiet + LOOK_EVERY * MOST_QUIET_LOOKS:
            yield SamplingRequest(job, tuple(rank.rank for rank in job.live), LOOK_EVERY)


def _may_keep_gil(rank: RankView) -> bool:
    """Whether its last stack since its last progress shows it with the GIL."""
    last = rank.looks[-1] if rank.looks else None
    return last is not None and bool(last.holds_gil) and last.at >= rank.advanced_at

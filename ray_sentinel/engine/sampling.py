"""Routine stack samples of ranks that report no progress, without a case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ray_sentinel.engine.actions import TakeStacks
from ray_sentinel.engine.activities import has_nothing_to_do
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobKey, JobView
from ray_sentinel.engine.ranks import RankView

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


def routine_samples(
    view: ClusterView, busy: set[JobKey], sampled: dict[JobKey, float], now: float
) -> Iterator[TakeStacks]:
    """The samples that are due in jobs without step counts that have gone quiet. ``sampled`` is
    when each job was sampled last, and is brought up to date.

    A main thread that polls a device burns a CPU whether or not the job makes progress; only
    another stack shows that it moves. Ranks that count steps need no look.
    """
    for job in view.jobs.values():
        if job.key in busy or job.counts_steps or not job.live:
            continue
        ranks, every, looks = _wanted(job, now)
        if ranks and now - sampled.get(job.key, 0.0) >= every:
            sampled[job.key] = now
            yield TakeStacks(
                incident="", round=0, ranks=tuple(one.rank for one in ranks), looks=looks
            )


def _wanted(job: JobView, now: float) -> tuple[Sequence[RankView], float, int]:
    """The ranks to sample, after how many seconds again, and how often each; nobody if nothing is
    quiet."""
    if job.may_join():
        every = min(JOIN_SELDOM, max(JOIN_EVERY, JOIN_SHARE * (now - job.first_seen)))
        return job.live, every, 1
    if has_nothing_to_do(job):
        return job.live, IDLE_EVERY, 1
    quiet, silence = 0.5 * job.short_timeout(2 * LEAST_QUIET), job.silence(now)
    if not job.training() or silence < quiet:
        return (), 0.0, 0
    lately = silence < quiet + LOOK_EVERY * MOST_QUIET_LOOKS
    if lately and (holders := [rank for rank in job.live if _may_keep_gil(rank)]):
        return holders, HOLDER_EVERY, HOLDER_LOOKS
    return (job.live if lately or job.works_apart() else ()), LOOK_EVERY, 1


def _may_keep_gil(rank: RankView) -> bool:
    """Whether its last stack since its last progress shows it with the GIL."""
    last = rank.looks[-1] if rank.looks else None
    return last is not None and bool(last.holds_gil) and last.at >= rank.advanced_at

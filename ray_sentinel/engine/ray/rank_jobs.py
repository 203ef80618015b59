"""Ranks that are actors of Ray jobs, or run below them, and whether a case is about them."""

from __future__ import annotations

from collections.abc import Iterable

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.engine.ray.jobs import RayTrack
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.waitgraph.picture import RootMember

OURS_SECONDS = 15.0
"""Seconds to wait for a decision in the case of the ranks, before a rank is named without it."""


def fellows(view: ClusterView, process: ProcessId) -> frozenset[ProcessId]:
    """The other live ranks of the job in which a process is a rank."""
    rank = rank_of(view, process)
    live = rank[0].live if rank is not None else ()
    return frozenset(one.rank.process for one in live) - {process}


def is_the_ranks(
    view: ClusterView, members: Iterable[RootMember], now: float, since: float
) -> bool:
    """Whether one of them is a rank about which the case of its own job says more, or may be about
    to.

    ``since`` is when they were first seen in this state. A job of ranks that has moved after that
    does not see what holds them up: threads of Ray's that poll in idle actors look like work.
    """
    for member in members:
        rank = rank_of(view, member.process)
        job = rank[0] if rank is not None else _engine_below(view, member.process)
        if job is None:
            continue
        soon = job.training() and job.silence(now) < job.timeout() + OURS_SECONDS
        if view.open_incidents.get(job.key) or (soon and job.moved_at() <= since):
            return True
    return False


def rank_of(view: ClusterView, process: ProcessId) -> tuple[JobView, RankView] | None:
    for job in view.jobs.values():
        if (rank := job.ranks.get(process)) is not None and rank.alive:
            return job, rank
    return None


def _engine_below(view: ClusterView, process: ProcessId) -> JobView | None:
    """The job of the inference engine below a process."""
    track = view.ray.track_of(process)
    name = track.engine if track is not None else ""
    return next((job for job in view.jobs.values() if name and job.job == name and job.live), None)


def ray_job_of(view: ClusterView, job: JobView) -> RayJobView | None:
    """The Ray job whose actors are the ranks of a job, or run above them."""
    if (above := above_ranks(view, job)) is not None:
        return view.ray.job_of(above)
    for rank in job.live:
        owner = view.ray.owners.get(rank.node, {}).get(rank.rank.process.pid)
        if owner is not None:
            return view.ray.jobs.get(owner)
    return None


def above_ranks(view: ClusterView, job: JobView) -> RayTrack | None:
    """The process of Ray below which an inference engine's ranks run."""
    of_engine = any(rank.rank.role == "engine" for rank in job.live[:1])
    return view.ray.above_engine(job.job) if of_engine else None

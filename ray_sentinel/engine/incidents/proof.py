"""Whether the hard evidence behind an incident still holds, whatever else moves.

A process that is stopped, blocked in the kernel or holds its GIL does not go on because others do:
a driver that waits for any of several calls takes the next one that is ready, and ranks may work
apart. One sign that evidence lasts is that a rule makes the same finding again; the other is the
state of the named processes, which agents see each second.
"""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.incidents.case import Case
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.ray.jobs import RayTrack
from ray_sentinel.model.fault_kinds import KINDS


def lasts(view: ClusterView, case: Case) -> bool:
    """Whether at least one named process has been in the proven state ever since it was reported,
    and something is still requested of it."""
    incident = case.incident
    told_at, state = incident.confirmed_at, KINDS[incident.kind].proving_state
    if told_at is None or not state:
        return False
    ranks = (rank.state_since.get(state) for rank in _ranks(case) if rank.advanced_at <= told_at)
    if any(since is not None and since <= told_at for since in ranks):
        return True
    asked = _cannot_go_on(view, case)
    return any(
        track.is_held and track.state_since <= told_at
        for track in _members(view, case)
        if (track.process.host, track.process.pid) in asked
    )


def runs_again(view: ClusterView, case: Case, now: float) -> bool:
    """Whether all members of a Ray job that were named as stopped or blocked are running again,
    even in a call that takes long. That nothing begins or ends in the job then proves nothing."""
    told_at = case.incident.confirmed_at
    if told_at is None or not KINDS[case.incident.kind].is_checked:
        return False
    tracks = list(_members(view, case))
    return bool(tracks) and all(
        track.runs_again(now) and track.moved_at > told_at for track in tracks
    )


def _named(case: Case) -> set[tuple[str, int | None]]:
    verdict = case.incident.verdict
    return {(one.host, one.pid) for one in verdict.culprits} if verdict is not None else set()


def _ranks(case: Case) -> Iterator[RankView]:
    """The living ranks of its job that were named."""
    named = _named(case)
    for rank in case.job.live:
        if (rank.rank.process.host, rank.rank.process.pid) in named:
            yield rank


def _members(view: ClusterView, case: Case) -> Iterator[RayTrack]:
    """The named members of its Ray job that are seen now."""
    if not case.job.ray_job:
        return
    named = _named(case)
    for tracks in view.ray.tracks.values():
        for track in tracks.values():
            if (track.process.host, track.process.pid) in named:
                yield track


def _cannot_go_on(view: ClusterView, case: Case) -> set[tuple[str, int]]:
    """The processes that could not go on with what was requested of them, in the newest look at
    their Ray job."""
    ray_job = view.ray.jobs.get(case.job.ray_job)
    return {
        (member.process.host, member.process.pid)
        for seen in (ray_job.roots if ray_job is not None else ())
        for member in seen.root.processes
        if seen.root.kind == "broken"
    }

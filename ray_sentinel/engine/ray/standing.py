"""Whether a process of a Ray job that stands still, or goes round in one place, is stuck there."""

from __future__ import annotations

from ray_sentinel.engine.activities import LONG_ACTIVITIES, takes_long
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.ray.devices import device_kind
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.engine.ray.methods import RHYTHM, call_timeout
from ray_sentinel.engine.ray.rank_jobs import fellows
from ray_sentinel.engine.ray.seen import StandingMember, is_sure_after
from ray_sentinel.engine.telemetry.inference import deployment_of, served
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.stacks import StackFact


def standing_kind(
    view: ClusterView, job: RayJobView, standing: StandingMember, now: float
) -> FaultKind | None:
    """The kind of fault of a process that runs something, and stands still or goes round in it;
    None if none is proven."""
    if standing.round_in is not None:
        return round_kind(view, job, standing, now)
    process = standing.member.process
    if not standing.is_sure() or job.children_may_pause(process, standing):
        return None
    kind = _at_device(view, job, standing) if standing.at_device else "actor-stuck"
    if standing.thread_still_since is not None:
        return kind if _thread_is_stuck(view, job, standing, now) else None
    track = view.ray.track_of(process)
    if track is None:
        return None
    still_since = job.has_stood_since(process, track.began, track.still_since)
    if still_since > standing.first_at:
        return None
    timeout = job.timeout_in(track.runs) if track.runs else None
    still_since = job.still_from(track.runs, track.began, still_since)
    until = job.seen_still_until(process, standing.last_at, now)
    stuck = timeout is not None and until - still_since > timeout
    return kind if stuck else None


def _thread_is_stuck(
    view: ClusterView, job: RayJobView, standing: StandingMember, now: float
) -> bool:
    """Whether a thread other than the main one is stuck: it has stood still since the first look
    for longer than any call took as a whole, and its own call has taken several times as long as
    any. Nobody watches a thread before the first look, but when the call began is known."""
    still_since = standing.thread_still_since
    member = standing.member
    longest, began = job.longest_call_of(member.does), standing.began
    if not member.methods:  # Ray Serve reports its calls itself
        requests = served(view, now).get(deployment_of(member.role))
        if requests is not None and requests.ended >= RHYTHM:
            longest, began = requests.longest, requests.ended_at
    if still_since is None or longest is None:
        return False
    # What was not seen proves nothing.
    seen = is_sure_after(standing.last_at - still_since, longest)
    since = still_since if began is None else began
    return seen and now - since > call_timeout(longest)


def round_kind(
    view: ClusterView, job: RayJobView, standing: StandingMember, now: float
) -> FaultKind | None:
    """The kind of fault of a process that was on a CPU in one function at all looks, and has not
    rested since long before the last of them; None if none is proven. A call that computes for long
    is seen in several functions."""
    track, fact = view.ray.track_of(standing.member.process), standing.round_in
    if fact is None or not standing.is_sure() or fact.activity in LONG_ACTIVITIES:
        return None
    # C code that keeps the GIL, and a loop of one line, look the same.
    kind: FaultKind | None = "actor-stuck" if standing.keeps_gil else "cpu-spin"
    if standing.at_device:
        kind = _at_device(view, job, standing)
    if standing.restless_for is not None:
        return kind if _thread_goes_round(job, standing, fact) else None
    if track is None or track.restless_since is None:
        return None
    # Looks before a rest, or before its agent could not tell for a moment, prove nothing.
    if not is_sure_after(standing.last_at - max(standing.first_at, track.restless_since)):
        return None
    driver = standing.member.role == "driver"
    timeout = None if takes_long(fact) else job.round_timeout_in("" if driver else track.runs)
    # Ray knows the single call; one title may stand for several successive calls.
    runs_for = (
        now - job.changed_at if driver else standing.asked_at - (standing.began or track.since)
    )
    if timeout is None or min(runs_for, now - track.restless_since) <= timeout:
        return None
    return "driver-stuck" if driver and not standing.at_device else kind


def _at_device(view: ClusterView, job: RayJobView, standing: StandingMember) -> FaultKind | None:
    return device_kind(job, standing.member, fellows(view, standing.member.process))


def _thread_goes_round(job: RayJobView, standing: StandingMember, fact: StackFact) -> bool:
    """Whether a thread other than the main one goes round: it has not rested between looks that are
    further apart than any call took, and its own call takes many times as long as any."""
    names, began = standing.member.does, standing.began
    longest, timeout = job.longest_call_of(names), job.longest_round_timeout(names)
    if longest is None or timeout is None or began is None or takes_long(fact):
        return False
    seen = is_sure_after(standing.restless_for or 0.0, longest)
    return seen and standing.asked_at - began > timeout

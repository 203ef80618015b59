"""From who waits for whom in a Ray job to a finding: the root of the waits is the culprit.

The kind of root decides how much more must be known: a circle of calls, something that cannot be
placed and a process that cannot go on are proof by themselves; a process that merely stands still
is proof only if it has stood still for longer than it usually does; one that goes round in one
function on a CPU, only if it has not rested for many times as long as its calls ever took.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import NEVER
from ray_sentinel.engine.ray.job_view import (
    EARLY_SECONDS,
    UNKNOWN_TIMEOUT,
    RayJobView,
    given_timeout,
)
from ray_sentinel.engine.ray.jobs import BUILD_TIMEOUT, STOPPED_SECONDS, RayTrack
from ray_sentinel.engine.ray.methods import LEAST_TIMEOUT, RHYTHM, call_timeout
from ray_sentinel.engine.ray.rank_jobs import OURS_SECONDS, is_the_ranks, ray_job_of
from ray_sentinel.engine.ray.seen import SeenRoot, StandingMember, is_sure_after
from ray_sentinel.engine.ray.standing import round_kind, standing_kind
from ray_sentinel.engine.ray.verdict import ENVIRONMENTS, verdict_on
from ray_sentinel.engine.telemetry.inference import deployment_of, served
from ray_sentinel.model.fault_kinds import KINDS
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import ChainLink, FaultKind, Finding, Verdict
from ray_sentinel.waitgraph.facts import ANSWER, CALLED, LOCKED
from ray_sentinel.waitgraph.picture import RootMember, WaitRoot
from ray_sentinel.waitgraph.ray_calls import OWN_WAIT
from ray_sentinel.waitgraph.wakers import WAITS

RULE = "ray.waits"
BROKEN: tuple[FaultKind, ...] = ("rank-stopped", "gil-held", "kernel-blocked")
"""Kinds of fault that are proven of a process by itself."""
OUTSIDE = frozenset({"circle", "broken", "standing", "unheld", "mute"})
"""Roots that may be reported and lie outside the ranks."""


def findings(view: ClusterView, now: float) -> Iterator[Finding]:
    """What holds the Ray jobs up now, with its whole verdict; at most one per job."""
    for job in view.ray.running():
        told = next(_verdicts(view, job, now), None)
        if told is not None:
            yield Finding(
                rule=RULE,
                job=job.name,
                attempt=0,
                kind=told.kind,
                severity="critical",
                summary=told.summary,
                hard=True,
                settled=True,
                verdict=told,
            )


def _verdicts(view: ClusterView, job: RayJobView, now: float) -> Iterator[Verdict]:
    """The verdicts, those with the most waiters first."""
    for seen in job.roots:
        kind = _kind(view, job, seen, now)
        # A case about the ranks would not show a circle.
        since = NEVER if seen.root.kind == "circle" else seen.first_at
        if kind and not is_the_ranks(view, seen.root.processes, now, since):
            yield verdict_on(view, job, _told(view, job, seen, kind, now), kind)
    for standing in job.standing.values():
        if _may_be_unawaited(view, job, standing, now):
            continue
        # Others go on without it, so it holds nobody up yet; it still never ends.
        kind = standing_kind(view, job, standing, now)
        if kind and not is_the_ranks(view, (standing.member,), now, standing.first_at):
            yield verdict_on(view, job, _root_of(standing), kind)


def _may_be_unawaited(
    view: ClusterView, job: RayJobView, standing: StandingMember, now: float
) -> bool:
    """Whether nobody may wait for what a process of a job runs. All that is known of a call that is
    not reported to Ray is that somebody waits for it, or that Ray Serve counts its request among
    those of a deployment that are late. If another job waits for it, it is named there."""
    member = standing.member
    if member.methods or standing.round_in is not None:
        return False
    deployment = deployment_of(member.role)
    if not deployment or deployment not in late_deployments(view, now):
        return True
    others = (other for other in view.ray.running() if other is not job)
    roots = (seen.root for other in others for seen in other.stuck_roots())
    return any(one.process == member.process for root in roots for one in root.processes)


def _kind(view: ClusterView, job: RayJobView, seen: SeenRoot, now: float) -> FaultKind | None:
    """The kind of fault that is proven; None while none is."""
    root = seen.root
    if root.kind == "circle":
        sure = seen.is_sure() and (not _by_connections(root) or _has_stopped(job, now))
        return "call-deadlock" if sure else None
    if root.lacks in ENVIRONMENTS:
        return "pending" if _is_built_no_more(job, seen, now) else None
    if root.kind == "unheld":
        lacking = root.lacks is not None and seen.is_sure() and _is_not_given(view, job, seen, now)
        return ("object-store" if root.lacks == "memory" else "pending") if lacking else None
    if not root.processes or root.engine:
        return None  # of an engine, a case of its own reports it, and who is above it
    member = root.processes[0]
    track = view.ray.track_of(member.process)
    if root.kind == "broken":
        return _broken_kind(root) if _cannot_go_on(view, job, seen, track, now) else None
    if job.children_may_pause(member.process, seen):
        return None
    standing = job.standing.get(member.process)
    if standing is not None and standing.at_device:
        return standing_kind(view, job, standing, now)
    if root.kind == "standing" and member.role == "driver":
        still_since = _main_thread_still(job, track)
        until = job.seen_still_until(member.process, seen.last_at, now)
        stuck = still_since is not None and _loop_stands(job, seen, still_since, until)
        return "driver-stuck" if stuck else None
    if root.kind == "works":
        return round_kind(view, job, standing, now) if standing is not None else None
    if root.kind == "mute" and _unnoticed_end(view, member, now):
        return "actor-dead" if seen.is_sure() else None
    if root.kind == "mute":
        sure = job.has_rhythm and seen.is_sure() and job.silence(now) > job.timeout
        return "unknown" if sure else None
    kind = standing_kind(view, job, standing, now) if standing is not None else None
    holds_up = _runner_stands(job, seen, track, now) or _all_wait_for(job, seen, now)
    return kind or ("actor-stuck" if holds_up else None)


def _runner_stands(job: RayJobView, seen: SeenRoot, track: RayTrack | None, now: float) -> bool:
    """Whether an actor stands still that is to its job what a driver usually is: one call of it
    runs the whole loop, which calls the other actors. That call has run for longer than any pause
    of the job while calls of others began and ended, and all wait for it. How long it may take, no
    call before it tells. One that has hardly begun gets as long as any call of which nothing is
    known.
    """
    member = seen.root.processes[0]
    standing = job.standing.get(member.process)
    still_since = _still_since(job, seen, standing, track)
    known = job.longest_call_of(member.methods) is not None
    began = max(member.begun.values(), default=None)
    if known or began is None or still_since is None or not _holds_all(job, seen):
        return False
    now = job.seen_still_until(member.process, seen.last_at, now)
    if job.changed_at - began <= job.timeout and job.silence(now) <= UNKNOWN_TIMEOUT:
        return False  # it may be preparing something
    return _loop_stands(job, seen, still_since, now)


def _still_since(
    job: RayJobView, seen: SeenRoot, standing: StandingMember | None, track: RayTrack | None
) -> float | None:
    """Since when the thread has not run in which a root stands, or the event loop of its coroutines
    that await something. Agents watch main threads only; of others, looks tell. A process that
    waits for the very actor that it should call counts as still since the first look. None if
    nobody knows."""
    if seen.root.moves is not None:
        return seen.unmoved_since
    if seen.root.why.startswith(WAITS):
        return seen.first_at
    if standing is None or standing.thread_still_since is not None:
        return standing.thread_still_since if standing is not None else None
    return _main_thread_still(job, track)


def _main_thread_still(job: RayJobView, track: RayTrack | None) -> float | None:
    if track is None:
        return None
    return job.has_stood_since(track.process, track.began, track.still_since)


def _loop_stands(job: RayJobView, seen: SeenRoot, still_since: float, now: float) -> bool:
    """Whether who runs a job's loop, and last ran ``still_since``, has stood still since the first
    of some looks; or sleeps for longer than any pause of the job, and has slept again and again for
    as long as nothing is known of a call.

    A sleep of which the kernel tells that it ends soon after the last step is a pause between two
    rounds. An actor that sleeps in one of their calls is no such thing: somebody waits for it
    meanwhile.
    """
    # It may have been seen at the same place before, and has gone on since.
    first_at = max(seen.first_at, job.quiet_look_at)
    sure = is_sure_after(seen.last_at - first_at)
    if not job.has_rhythm or not sure or job.silence(now) <= job.timeout:
        return False
    ends = job.sleep_ends(seen.root.processes[0].process)
    if ends is not None and ends <= job.changed_at + UNKNOWN_TIMEOUT:
        return False
    again = ends is not None and ends - still_since > job.timeout
    return again or still_since <= first_at


def _unnoticed_end(view: ClusterView, member: RootMember, now: float) -> str:
    """How an actor's process has ended, if Ray still takes it for alive; empty if it has not ended.
    Ray notices an end by the process's connections, which the processes that it has forked may
    keep open."""
    actor = next((one for one in view.ray.table.actors if one.id == member.actor), None)
    if actor is None or view.ray.tracks.get(actor.node, {}).get(actor.pid) is not None:
        return ""
    return view.deaths.unnoticed(actor.node, actor.pid, now)


def _is_not_given(view: ClusterView, job: RayJobView, seen: SeenRoot, now: float) -> bool:
    """Whether what a call lacked in the last look is given to nobody. While calls end, what they
    held is given to others in turn."""
    in_turn = job.goes_on(now) and not view.ray.pending(job, now)
    return _age(seen.root, job, seen.last_at) >= given_timeout(seen.root) and not in_turn


def _cannot_go_on(
    view: ClusterView, job: RayJobView, seen: SeenRoot, track: RayTrack | None, now: float
) -> bool:
    """Whether a process that something was requested of cannot go on with it. If it has held nobody
    up, because the others wait for any of several or for nothing, or if the job goes on, a state
    that may be over in a moment must last: a wait for a disk between two looks, or C code that
    keeps the GIL for longer than a call may take."""
    kind = _broken_kind(seen.root)
    if track is not None and track.since > seen.last_at:
        return False  # the look is older
    if kind == "kernel-blocked" and seen.root.moves is not None:  # a thread that nobody watches
        return seen.has_not_moved()
    held_for = track.stopped_for(now) if track is not None else 0.0
    if track is not None and _is_free(view, job, kind, track, now):
        return False
    momentary = kind in ("kernel-blocked", "gil-held") and job.goes_on(now)
    if kind == "rank-stopped" or (seen.held_up and not momentary):
        return seen.is_sure() or held_for > STOPPED_SECONDS
    if kind == "kernel-blocked":
        return seen.is_sure() and held_for >= now - seen.first_at
    if kind != "gil-held":
        return False  # it has ended: its death is reported instead
    names = seen.root.processes[0].methods
    if seen.held_up:  # two looks may have hit two calls, or one that is not late
        limit: float | None = call_timeout(job.longest_call_of(names) or 0.0)
    else:
        limit = job.longest_round_timeout(names)
    return seen.is_sure() and limit is not None and _age(seen.root, job, now) > limit


def _is_free(
    view: ClusterView, job: RayJobView, kind: FaultKind, track: RayTrack, now: float
) -> bool:
    """Whether a process that was stopped or blocked no longer is. A report of it is withdrawn once
    that has lasted for a while: a process that writes a lot is blocked now and then."""
    if not KINDS[kind].is_checked:
        return False
    told = view.open_incidents.get((job.name, 0))
    return track.runs_again(now) if told else not track.is_held


def _by_connections(root: WaitRoot) -> bool:
    """Whether its members wait for an answer over a connection, or for a lock on a file, among
    other things: nobody answers what is only ever sent, as by a queue, and another thread of the
    process may hold the lock for a moment."""
    return any(step.how in (ANSWER, LOCKED) for step in root.chain)


def _has_stopped(job: RayJobView, now: float) -> bool:
    """Whether a job that has a rhythm has begun and ended nothing for far longer than ever."""
    timeout = job.round_timeout_in("")
    return timeout is not None and job.silence(now) > max(UNKNOWN_TIMEOUT, timeout)


def _is_built_no_more(job: RayJobView, seen: SeenRoot, now: float) -> bool:
    """Whether the building of an environment stands still. However long it takes, it is not stuck
    while any of its threads still gets a CPU now and then. Ray's agent builds nothing and answers
    nobody while it waits for the bytes of a download."""
    root = seen.root
    if root.kind != "standing" or not seen.is_sure() or _age(root, job, now) < LEAST_TIMEOUT:
        return False
    return root.lacks == "environment agent" or seen.last_at - seen.first_at >= BUILD_TIMEOUT


def _all_wait_for(job: RayJobView, seen: SeenRoot, now: float) -> bool:
    """Whether an actor holds up the whole job, and has done so for many times as long as its calls
    ever took; for several times as long, if the event loop of its coroutines has not run in looks
    that are further apart than any call took. Where other calls begin and end, one of its own must
    have run for many times as long.

    Its calls may run in coroutines and threads, which its main thread does not show, although the
    timeout is otherwise measured by that thread. What the calls await may come from another
    process, if another one runs anything.
    """
    root, member = seen.root, seen.root.processes[0]
    called_at = root.chain[-1].since if root.chain else None
    if called_at is None or not seen.is_sure():
        return False
    usual = [p for name in member.does if (p := job.round_timeout_in(name)) is not None]
    if not usual:
        return False
    longest = job.longest_call_of(member.does)
    timeout = max(UNKNOWN_TIMEOUT, *usual)
    if root.moves is not None and longest is not None:
        timeout = call_timeout(longest) if seen.has_not_moved(longest) else timeout
    silent = min(now - called_at, job.silence(now)) > timeout
    if not silent and not _late_coroutines(job, seen):
        return False  # others begin and end, as usual
    return _holds_all(job, seen)


def _holds_all(job: RayJobView, seen: SeenRoot) -> bool:
    """Whether all processes that do anything in a job, and its driver, wait for an actor."""
    if job.picture is None:
        return False
    held_up = {(one.host, one.pid) for one in seen.root.waiting}
    held_up |= {(one.process.host, one.process.pid) for one in seen.root.processes}
    return all(
        (one.host, one.pid) in held_up
        for one in job.picture.processes
        if one.calls or one.role == "driver"
    )


def _late_coroutines(job: RayJobView, seen: SeenRoot) -> tuple[str, ...]:
    """The methods of an actor of whose calls one has awaited something for many times as long as
    any ever took, the latest first. Others of its coroutines may go on meanwhile."""
    if seen.root.why != OWN_WAIT:
        return ()
    found = job.coroutine_limits(seen.root.processes[0])
    late = sorted((limit, name) for name, limit in found if limit < seen.last_at)
    return tuple(name for _, name in late)


def late_deployments(view: ClusterView, now: float) -> tuple[str, ...]:
    """The job names of the deployments of Ray Serve that have a request, and of which none has
    ended for longer than usual, or soon will not have."""
    return tuple(
        job
        for job, one in served(view, now).items()
        if one.ended >= RHYTHM and now - one.ended_at > call_timeout(one.longest) - EARLY_SECONDS
    )


def may_wait_for(view: ClusterView, deployments: Collection[str], now: float) -> set[str]:
    """The ids of the Ray jobs that may wait for deployments of Ray Serve: those that have made
    them, and any that is silent, because Ray is not told who has called a replica."""
    if not deployments:
        return set()
    actors = view.ray.table.actors
    made = {actor.job for actor in actors if deployment_of(actor.kind) in deployments}
    early = LEAST_TIMEOUT - EARLY_SECONDS
    return made | {job.id for job in view.ray.running() if job.silence(now) > early}


def _root_of(standing: StandingMember) -> WaitRoot:
    """A root made of a standing process: only its caller is known to wait."""
    method = ", ".join(standing.member.methods[:1])
    place = f"{method} at {standing.member.label}" if method else standing.member.label
    link = ChainLink(start=standing.called_by, end=place, how=CALLED, witness="ray")
    return WaitRoot(
        kind="works" if standing.round_in and not standing.at_device else "standing",
        who=(standing.member.label,),
        why=standing.place,
        waiters=0,
        processes=(standing.member,),
        chain=(link,) if standing.called_by else (),
        sentence=f"{place}: {standing.place}",
    )


def _told(
    view: ClusterView, job: RayJobView, seen: SeenRoot, kind: FaultKind, now: float
) -> WaitRoot:
    """A root as it is reported."""
    root = seen.root
    if kind == "actor-dead":
        return _ended(view, root, now)
    late = _late_coroutines(job, seen)
    if not late:
        return root
    # It also runs calls that go on.
    member = msgspec.structs.replace(root.processes[0], methods=late)
    return msgspec.structs.replace(root, processes=(member,))


def _ended(view: ClusterView, root: WaitRoot, now: float) -> WaitRoot:
    """A root that could not be looked at because its process has ended."""
    why = f"{_unnoticed_end(view, root.processes[0], now)}, which Ray has not noticed"
    sentence = f"{root.sentence.removesuffix(root.why)}{why}"
    return msgspec.structs.replace(root, why=why, sentence=sentence)


def _broken_kind(root: WaitRoot) -> FaultKind:
    return next((kind for kind in BROKEN if kind == root.fault), "actor-stuck")


def _age(root: WaitRoot, job: RayJobView, now: float) -> float:
    """Seconds for which somebody has waited for a root."""
    known = [step.since for step in root.chain if step.since is not None]
    return now - min(known) if known else job.silence(now)


def explained(view: ClusterView, job: JobView, now: float) -> SeenRoot | None:
    """What the ranks of a job wait for outside of it, by the newest look at their Ray job, if that
    has been reported or may be in a moment. None if a rank itself holds the job up and that is not
    reported yet, or if nothing is known since the job fell silent."""
    ray_job = ray_job_of(view, job)
    if ray_job is None or (ray_job.looked_at or 0.0) <= job.moved_at():
        return None
    ranks = {rank.rank.process for rank in job.live}
    # A rank may wait at its device for another rank.
    roots = [s for s in ray_job.stuck_roots() if not ranks & ray_job.at_devices & _members(s.root)]
    # No case about the ranks would show that the Ray job's members wait for each other.
    own = [s for s in roots if s.root.kind != "circle" and ranks & _members(s.root)]
    if own and view.open_incidents.get((ray_job.name, 0)):
        return own[0]
    if any(seen.held_up for seen in own):
        return None
    found = (
        s
        for s in roots
        if s.held_up and s.root.kind in OUTSIDE and ranks & (_members(s.root) | set(s.root.waiting))
    )
    seen = next(found, None)
    soon = job.silence(now) < job.timeout() + OURS_SECONDS
    return seen if seen is not None and (soon or _kind(view, ray_job, seen, now)) else None


def _members(root: WaitRoot) -> set[ProcessId]:
    return {member.process for member in root.processes}

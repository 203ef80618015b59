"""From who waits for whom in a Ray job to a finding: the root of the waits is the culprit.

The kind of root decides how much more must be known: a circle of calls, something that cannot be
placed and a process that cannot go on are proof by themselves; a process that merely stands still
is proof only if it has stood still for longer than it usually does; one that goes round in one
function on a CPU, only if it has not rested for many times as long as its calls ever took.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from ray_sentinel.engine.activities import LONG_ACTIVITIES, takes_long
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import NEVER, RankView
from ray_sentinel.engine.ray.devices import at_devices_text, device_kind
from ray_sentinel.engine.ray.job_view import (
    EARLY_SECONDS,
    UNKNOWN_TIMEOUT,
    RayJobView,
    SeenRoot,
    StandingMember,
    is_sure_after,
)
from ray_sentinel.engine.ray.jobs import BUILD_TIMEOUT, STOPPED_SECONDS, RayTrack
from ray_sentinel.engine.ray.methods import LEAST_TIMEOUT, RHYTHM, call_timeout
from ray_sentinel.engine.ray.placement import Missing, missing_text
from ray_sentinel.engine.telemetry.inference import deployment_of, served
from ray_sentinel.model.fault_kinds import KINDS
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import (
    ChainLink,
    Culprit,
    EvidenceItem,
    FaultKind,
    Finding,
    Verdict,
)
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.chain import GOES_ON
from ray_sentinel.waitgraph.confidence import CALLS, by_calls, confidence
from ray_sentinel.waitgraph.engine_work import SERVER
from ray_sentinel.waitgraph.facts import ANSWER, CALLED, HANDED_TO
from ray_sentinel.waitgraph.picture import RootMember, WaitRoot
from ray_sentinel.waitgraph.ray_calls import OWN_WAIT
from ray_sentinel.waitgraph.unmet import NO_NODE

RULE = "ray.waits"
NOBODY = 0.3
"""The confidence of an answer that names nobody, because nothing can be learned of whom all wait
for."""
BROKEN: tuple[FaultKind, ...] = ("rank-stopped", "gil-held", "kernel-blocked")
"""Kinds of fault that are proven of a process by itself."""
OUTSIDE = frozenset({"circle", "broken", "standing", "unheld", "mute"})
"""Roots that may be reported and lie outside the ranks."""
ENVIRONMENTS = frozenset({"environment", "environment agent"})
"""What a root lacks that waits for a runtime environment to be built."""
BUILD_STEPS = (
    "Read runtime_env_setup-*.log and runtime_env_agent.log in the node's Ray session; an index, "
    "a repository or a bucket that does not answer holds it up.",
    'Give it less time with runtime_env={"config": {"setup_timeout_seconds": ...}}, or have the '
    "packages in the nodes' image.",
)
ENGINE_STEPS = (
    "The engine has requests, and none of its ranks is to blame: its front end or scheduler, in "
    "the actor or below it, does not hand them on. Look at its log, and restart the engine.",
)
"""What to do about an actor whose inference engine hangs."""
MOST_NODES = 4
"""Most nodes whose free resources are listed."""
OURS_SECONDS = 15.0
"""Seconds to wait for a decision in the case of the ranks, before a rank is named without it."""


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
        if kind and not _is_the_ranks(view, seen.root.processes, now, since):
            yield _verdict(view, job, _told(view, job, seen, kind, now), kind)
    for standing in job.standing.values():
        # All that is known of a call that is not reported to Ray is that somebody waits for it.
        if not standing.member.methods and standing.round_in is None:
            continue
        # Others go on without it, so it holds nobody up yet; it still never ends.
        kind = _standing_kind(view, job, standing, now)
        if kind and not _is_the_ranks(view, (standing.member,), now, standing.first_at):
            yield _verdict(view, job, _root_of(standing), kind)


def _kind(view: ClusterView, job: RayJobView, seen: SeenRoot, now: float) -> FaultKind | None:
    """The kind of fault that is proven; None while none is."""
    root = seen.root
    if root.kind == "circle":
        sure = seen.is_sure() and (not _by_connections(root) or _has_stopped(job, now))
        return "call-deadlock" if sure else None
    if root.lacks in ENVIRONMENTS:
        return "pending" if _is_built_no_more(job, seen, now) else None
    if root.kind == "unheld":
        lacking = root.lacks is not None and seen.is_sure() and _is_not_given(view, job, root, now)
        return ("object-store" if root.lacks == "memory" else "pending") if lacking else None
    if not root.processes:
        return None
    if root.engine:
        return None  # a case of its own reports it, and who is above it
    member = root.processes[0]
    track = view.ray.track_of(member.process)
    if root.kind == "broken":
        return _broken_kind(root) if _cannot_go_on(view, job, seen, track, now) else None
    standing = job.standing.get(member.process)
    if standing is not None and standing.at_device:
        return _standing_kind(view, job, standing, now)
    if root.kind == "standing" and member.role == "driver":
        stuck = track is not None and _driver_stands(job, seen, track, now)
        return "driver-stuck" if stuck else None
    if root.kind == "works":
        return _round_kind(view, job, standing, now) if standing is not None else None
    if root.kind == "mute" and _unnoticed_end(view, member, now):
        return "actor-dead" if seen.is_sure() else None
    if root.kind == "mute":
        sure = job.has_rhythm and seen.is_sure() and job.silence(now) > job.timeout
        return "unknown" if sure else None
    kind = _standing_kind(view, job, standing, now) if standing is not None else None
    return kind or ("actor-stuck" if _all_wait_for(job, seen, now) else None)


def _driver_stands(job: RayJobView, seen: SeenRoot, track: RayTrack, now: float) -> bool:
    """Whether a driver has stood still since the first of some looks; or sleeps for longer than any
    pause of its job, and has slept again and again for as long as nothing is known of a call."""
    if not job.has_rhythm or not seen.is_sure() or job.silence(now) <= job.timeout:
        return False
    if job.only_sleeps(track.process, job.changed_at):
        return False
    ends = job.sleep_ends(track.process)
    again = ends is not None and ends - track.still_since > job.timeout
    return again or track.still_since <= seen.first_at


def _unnoticed_end(view: ClusterView, member: RootMember, now: float) -> str:
    """How an actor's process has ended, if Ray still takes it for alive; empty if it has not ended.
    Ray notices an end by the process's connections, which the processes that it has forked may
    keep open."""
    actor = next((one for one in view.ray.table.actors if one.id == member.actor), None)
    if actor is None or view.ray.tracks.get(actor.node, {}).get(actor.pid) is not None:
        return ""
    return view.deaths.unnoticed(actor.node, actor.pid, now)


def _is_not_given(view: ClusterView, job: RayJobView, root: WaitRoot, now: float) -> bool:
    """Whether what a call lacks is given to nobody. While calls end, what they held is given to
    others in turn."""
    timeout = UNKNOWN_TIMEOUT if root.lacks == "worker" else LEAST_TIMEOUT
    in_turn = job.goes_on(now) and not view.ray.pending(job, now)
    return _age(root, job, now) >= timeout and not in_turn


def _cannot_go_on(
    view: ClusterView, job: RayJobView, seen: SeenRoot, track: RayTrack | None, now: float
) -> bool:
    """Whether a process that something was requested of cannot go on with it. If it has held nobody
    up, because the others wait for any of several or for nothing, or if the job goes on, a state
    that may be over in a moment must last: a wait for a disk between two looks, or C code that
    keeps the GIL for longer than a call may take."""
    kind = _broken_kind(seen.root)
    held_for = track.stopped_for(now) if track is not None else 0.0
    if track is not None and (track.since > seen.last_at or _is_free(view, job, kind, track, now)):
        return False  # the look is older
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
    """Whether its members wait for an answer over a connection, among other things: nobody answers
    what is only ever sent, as by a queue."""
    return any(step.how == ANSWER for step in root.chain)


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
    if job.picture is None or called_at is None or not seen.is_sure():
        return False
    usual = [p for name in member.does if (p := job.round_timeout_in(name)) is not None]
    if not usual:
        return False
    longest = job.longest_call_of(member.does)
    timeout = max(UNKNOWN_TIMEOUT, *usual)
    if root.moves is not None and longest is not None:
        still = is_sure_after(seen.last_at - seen.unmoved_since, longest)
        timeout = call_timeout(longest) if still else timeout
    silent = min(now - called_at, job.silence(now)) > timeout
    if not silent and not _late_coroutines(job, seen):
        return False  # others begin and end, as usual
    held_up = {(one.host, one.pid) for one in (*root.waiting, member.process)}
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


def _standing_kind(
    view: ClusterView, job: RayJobView, standing: StandingMember, now: float
) -> FaultKind | None:
    """The kind of fault of a process that runs something, and stands still or goes round in it;
    None if none is proven."""
    if standing.round_in is not None:
        return _round_kind(view, job, standing, now)
    if not standing.is_sure():
        return None
    kind = _at_device(view, job, standing) if standing.at_device else "actor-stuck"
    track = view.ray.track_of(standing.member.process)
    since = max(standing.began or NEVER, track.began if track is not None else NEVER)
    if job.only_sleeps(standing.member.process, since):
        return None
    if standing.thread_still_since is not None:
        return kind if _thread_is_stuck(view, job, standing, now) else None
    if track is None or track.still_since > standing.first_at:
        return None
    timeout = job.timeout_in(track.runs) if track.runs else None
    stuck = timeout is not None and now - track.still_since > timeout
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


def _round_kind(
    view: ClusterView, job: RayJobView, standing: StandingMember, now: float
) -> FaultKind | None:
    """The kind of fault of a process that was on a CPU in one function at all looks, and has not
    rested since before the first of them; None if none is proven. A call that computes for long is
    seen in several functions."""
    track, fact = view.ray.track_of(standing.member.process), standing.round_in
    if fact is None or not standing.is_sure() or fact.activity in LONG_ACTIVITIES:
        return None
    # C code that keeps the GIL, and a loop of one line, look the same.
    kind: FaultKind | None = "actor-stuck" if standing.keeps_gil else "cpu-spin"
    if standing.at_device:
        kind = _at_device(view, job, standing)
    if standing.restless_for is not None:
        return kind if _thread_goes_round(job, standing, fact) else None
    if track is None or track.restless_since is None or track.restless_since > standing.first_at:
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
    return device_kind(job, standing.member, _fellows(view, standing.member.process))


def _fellows(view: ClusterView, process: ProcessId) -> frozenset[ProcessId]:
    """The other live ranks of the job in which a process is a rank."""
    rank = _rank_of(view, process)
    live = rank[0].live if rank is not None else ()
    return frozenset(one.rank.process for one in live) - {process}


def _thread_goes_round(job: RayJobView, standing: StandingMember, fact: StackFact) -> bool:
    """Whether a thread other than the main one goes round: it has not rested between looks that are
    further apart than any call took, and its own call takes many times as long as any."""
    names, began = standing.member.does, standing.began
    longest, timeout = job.longest_call_of(names), job.longest_round_timeout(names)
    if longest is None or timeout is None or began is None or takes_long(fact):
        return False
    seen = is_sure_after(standing.restless_for or 0.0, longest)
    return seen and standing.asked_at - began > timeout


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


def _is_the_ranks(
    view: ClusterView, members: Iterable[RootMember], now: float, since: float
) -> bool:
    """Whether one of them is a rank about which the case of its own job says more, or may be about
    to.

    ``since`` is when they were first seen in this state. A job of ranks that has moved after that
    does not see what holds them up: threads of Ray's that poll in idle actors look like work.
    """
    for member in members:
        rank = _rank_of(view, member.process)
        job = rank[0] if rank is not None else _engine_below(view, member.process)
        if job is None:
            continue
        soon = job.training() and job.silence(now) < job.timeout() + OURS_SECONDS
        if view.open_incidents.get(job.key) or (soon and job.moved_at() <= since):
            return True
    return False


def _rank_of(view: ClusterView, process: ProcessId) -> tuple[JobView, RankView] | None:
    for job in view.jobs.values():
        if (rank := job.ranks.get(process)) is not None and rank.alive:
            return job, rank
    return None


def _engine_below(view: ClusterView, process: ProcessId) -> JobView | None:
    """The job of the inference engine below a process."""
    track = view.ray.track_of(process)
    name = track.engine if track is not None else ""
    return next((job for job in view.jobs.values() if name and job.job == name and job.live), None)


def _culprit(view: ClusterView, member: RootMember, root: WaitRoot, kind: FaultKind) -> Culprit:
    rank = _rank_of(view, member.process)
    return Culprit(
        rank=rank[1].rank.id.rank if rank is not None else None,
        host=member.process.host,
        pid=member.process.pid,
        reason=KINDS[kind].phrase if root.kind == "circle" else root.why.removeprefix(GOES_ON),
        role=member.role,
        actor=member.label if member.role != "driver" else "",
        method=", ".join(member.methods[:3]),
    )


def _verdict(view: ClusterView, job: RayJobView, root: WaitRoot, kind: FaultKind) -> Verdict:
    return Verdict(
        kind=kind,
        summary=_summary(view, job, root, kind),
        culprits=tuple(_culprit(view, member, root, kind) for member in root.processes)
        if kind != "unknown"
        else (),
        confidence=NOBODY if kind == "unknown" else confidence([by_calls(root.kind)]),
        evidence=(
            EvidenceItem(source=CALLS, text=root.sentence, proof=(root.kind,)),
            *(EvidenceItem(source=CALLS, text=text) for text in job.failed_before(root)),
            *(EvidenceItem(source=CALLS, text=note) for note in job.notes),
        ),
        chain=root.chain,
        stacks=_stacks(job, root),
        next_steps=BUILD_STEPS if root.lacks in ENVIRONMENTS else KINDS[kind].next_steps,
    )


def _stacks(job: RayJobView, root: WaitRoot) -> tuple[StackFact, ...]:
    """The stacks of those who hold it up, then of one process that waits for them."""
    shown = (*(member.process for member in root.processes), *root.waiting[:1])
    return tuple(job.stacks[process] for process in shown if process in job.stacks)


def _summary(view: ClusterView, job: RayJobView, root: WaitRoot, kind: FaultKind) -> str:
    others = f"{root.waiters} process{'es' * (root.waiters != 1)} wait{'s' * (root.waiters == 1)}"
    meeting = f" in {root.meeting}" if root.meeting else ""
    if kind == "call-deadlock":
        names = " and ".join(member.label for member in root.processes)
        return f"{names} wait for each other's calls{meeting}"
    if root.lacks in ENVIRONMENTS:
        return f"{root.who[0]} is not being built any more: {root.why}; {others}"
    if root.lacks == "worker":
        what = root.chain[-1].start if root.chain else "a call"
        return f"Ray starts no worker for {what}, although a node has room for it; {others}"
    if kind in ("pending", "object-store"):
        missing = job.missing.get(root.who[0], Missing())
        has = _free(view, job) if kind == "pending" and not missing.bound else ""
        if missing.never and missing.bound:
            scaler = f"; {missing.autoscaler}" if missing.autoscaler else ""
            return f"there can never be {root.who[0]}: {missing.never}{scaler}; {others}"
        if missing.never:
            name = root.who[0].removeprefix("a node with ").removesuffix(" free")
            what = name.replace(NO_NODE, "")
            scaler = f"; {missing.autoscaler}" if missing.autoscaler else ""
            return f"the cluster as it is can never hold {what}: {missing.never}{scaler}; {others}"
        return f"nothing in the cluster has {root.who[0]}{has}{missing_text(missing)}; {others}"
    member = root.processes[0]
    if kind == "unknown" and root.kind == "standing":
        names = at_devices_text(job, member, _fellows(view, member.process))
        return f"{names} wait for their devices, and nothing tells them apart; {others}{meeting}"
    if kind == "unknown":
        return (
            f"{others} for {member.label} on {member.process.host}, of which nothing can be "
            f"learned: {root.why}"
        )
    others = f"; {others}{meeting}" if root.waiters else ""
    if kind == "actor-dead":
        return f"{member.label} on {member.process.host} {root.why}{others}"
    runs = f" in {member.methods[0]}" if member.methods else ""
    if root.kind == "works":
        place = root.why.removeprefix(GOES_ON)
        return f"{member.label} on {member.process.host} spins{runs}: {place}{others}"
    failed = job.failed_before(root) if root.why == OWN_WAIT else ()
    before = f"; {failed[-1]}" if failed else ""
    return f"{member.label} on {member.process.host} stands still{runs}: {root.why}{before}{others}"


def _free(view: ClusterView, job: RayJobView) -> str:
    """How much is free on the nodes that have most of what the job requests. The sum over many
    nodes is of no use to something that needs it on one node."""
    nodes = sorted(
        ((view.host_of(node), free) for node, free in job.free_on.items() if any(free.values())),
        key=lambda node: (sorted(node[1].values(), reverse=True), node[0]),
        reverse=True,
    )
    if not nodes:
        return "; nothing of it is free on any node" if job.free_on else ""
    told = ", ".join(
        f"{' and '.join(f'{amount:g} {name}' for name, amount in free.items())} on {host}"
        for host, free in nodes[:MOST_NODES]
    )
    more = len(nodes) - MOST_NODES
    return f"; free are {told}{f' and no more on {more} others' if more > 0 else ''}"


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


def ray_job_of(view: ClusterView, job: JobView) -> RayJobView | None:
    """The Ray job whose actors are the ranks of a job, or run above them."""
    if (above := _above(view, job)) is not None:
        return view.ray.job_of(above)
    for rank in job.live:
        owner = view.ray.owners.get(rank.node, {}).get(rank.rank.process.pid)
        if owner is not None:
            return view.ray.jobs.get(owner)
    return None


def _above(view: ClusterView, job: JobView) -> RayTrack | None:
    """The process of Ray below which an inference engine's ranks run."""
    of_engine = any(rank.rank.role == "engine" for rank in job.live[:1])
    return view.ray.above_engine(job.job) if of_engine else None


def with_chain(view: ClusterView, job: JobView, verdict: Verdict) -> Verdict:
    """A verdict about ranks that are Ray actors, with the wait chain that leads to its culprit."""
    ray_job = ray_job_of(view, job)
    if ray_job is None or verdict.chain:
        return verdict
    if (above := _above(view, job)) is not None:
        return _of_engine(view, above, job, verdict)
    if not verdict.culprits:
        return verdict
    members = {
        (member.process.host, member.process.pid): (seen.root, member)
        for seen in ray_job.roots
        for member in seen.root.processes
    }
    found = [members.get((one.host, one.pid or 0)) for one in verdict.culprits]
    if found[0] is None:
        return verdict
    return msgspec.structs.replace(
        verdict,
        chain=found[0][0].chain,
        culprits=tuple(
            one
            if known is None
            else msgspec.structs.replace(
                one,
                role=known[1].role,
                actor=known[1].label,
                method=", ".join(known[1].methods[:3]),
            )
            for one, known in zip(verdict.culprits, found, strict=True)
        ),
    )


def _of_engine(view: ClusterView, above: RayTrack, engine: JobView, verdict: Verdict) -> Verdict:
    """A verdict about an inference engine, with the chain through the process above it. If the
    engine has requests and none of its ranks is to blame, that process is: it, or what it has
    started, does not pass them on."""
    ray_job = ray_job_of(view, engine)
    roots = ray_job.roots if ray_job is not None else ()
    members = ((seen.root, one) for seen in roots for one in seen.root.processes)
    found = next(((root, one) for root, one in members if one.process == above.process), None)
    if found is None:
        return verdict
    root, member = found
    if verdict.culprits:
        ranks = " and ".join(f"rank {one.rank}" for one in verdict.culprits)
        start = root.chain[-1].end if root.chain else member.label
        end = f"{ranks} of {engine.job}"
        link = ChainLink(start=start, end=end, how=HANDED_TO, witness=SERVER)
        return msgspec.structs.replace(verdict, chain=(*root.chain, link))
    if root.engine != engine.job:
        return verdict
    runs = f" in {member.methods[0]}" if member.methods else ""
    return msgspec.structs.replace(
        verdict,
        summary=f"{verdict.summary}; {member.label} on {member.process.host} waits for it{runs}",
        culprits=(_culprit(view, member, root, verdict.kind),),
        chain=root.chain,
        next_steps=ENGINE_STEPS,
    )

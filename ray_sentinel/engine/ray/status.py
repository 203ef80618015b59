"""Ray jobs in the words of ``status``: their members, and who waits for whom."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.activities import computes
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.engine.ray.jobs import RayTrack
from ray_sentinel.engine.ray.rank_jobs import ray_job_of
from ray_sentinel.engine.ray.seen import SeenRoot
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.ray_calls import RayActor
from ray_sentinel.model.status import JobStatus, MemberStatus, State

MOST_MEMBERS = 1000
SILENT = 3.0
"""Seconds without movement after which a process that runs something is called silent."""
STATES = {"T": "stopped", "t": "traced", "D": "blocked", "Z": "exited", "X": "exited"}


def ray_jobs(view: ClusterView, mine: list[Incident], now: float) -> Iterator[JobStatus]:
    """The jobs that have an actor which is not a rank, or something that cannot be placed. ``mine``
    are the open incidents."""
    running = list(view.ray.running())
    if not running:
        return
    ranks = {process for job in view.jobs.values() for process in job.ranks}
    groups = _groups(view, mine)
    for job in running:
        members = tuple(_members(view, job, ranks, now))
        waits = _waits(job, now)
        stuck = [one for one in mine if (one.job, one.attempt) == (job.name, 0)]
        starts = waits is not None and (waits.root.lacks is not None or view.ray.pending(job, now))
        actors = len(members) - (0 if job.driver.ended else 1)
        if actors or stuck or starts:
            yield _status(job, members, waits, [*stuck, *groups.get(job.id, ())], now)


def _groups(view: ClusterView, mine: list[Incident]) -> dict[str, list[Incident]]:
    """The open incidents of jobs whose ranks are among a Ray job's members, by Ray's job id."""
    found: dict[str, list[Incident]] = {}
    for one in mine:
        job = view.jobs.get((one.job, one.attempt))
        ray_job = ray_job_of(view, job) if job is not None and one.kind != "asked" else None
        if ray_job is not None:
            found.setdefault(ray_job.id, []).append(one)
    return found


def incidents_beside(view: ClusterView, job: JobView, mine: list[Incident]) -> list[Incident]:
    """The open incidents of the Ray job that the ranks of a job are members of."""
    ray_job = ray_job_of(view, job) if mine else None
    return [
        one
        for one in mine
        if ray_job is not None
        and (one.job, one.attempt) == (ray_job.name, 0)
        and one.kind != "asked"
    ]


def _status(
    job: RayJobView,
    members: tuple[MemberStatus, ...],
    waits: SeenRoot | None,
    stuck: list[Incident],
    now: float,
) -> JobStatus:
    state: State = "healthy"
    if any(one.severity == "critical" for one in stuck):
        state = "hung"
    elif stuck:
        state = "stalled"
    elif waits is not None:
        state = "slow" if waits.root.kind == "works" else "unknown"
    return JobStatus(
        job=job.name,
        attempt=0,
        step=None,
        phase="train" if job.has_rhythm else "running",
        step_age_seconds=round(job.silence(now), 3),
        state=state,
        step_seconds=None,
        ray_job=job.id,
        members=members,
        waits=waits.root.sentence if waits is not None else "",
    )


def _waits(job: RayJobView, now: float) -> SeenRoot | None:
    """What holds the job up, if it has been silent for longer than usual: something that may do so
    for ever, or else something that works in an overdue call."""
    if job.looked_at is None or job.silence(now) <= job.timeout:
        return None
    works = (
        seen
        for seen in job.roots
        if seen.root.kind == "works" and (seen.root.lacks is not None or _is_late(job, seen))
    )
    return next(iter(job.stuck_roots()), None) or next(works, None)


def _is_late(job: RayJobView, seen: SeenRoot) -> bool:
    """Whether somebody has waited for longer than usual. Of successive calls each is new, and
    without a usual duration, nothing that works is late. Actors that wait to be called have waited
    since the last change, if their caller computes: it may also wait for work."""
    since = [step.since for step in seen.root.chain if step.since is not None]
    found = (job.stacks.get(one.process) for one in seen.root.processes)
    if not since and not all(fact is not None and computes(fact) for fact in found):
        return False
    return job.has_rhythm and seen.last_at - min(since, default=job.changed_at) > job.timeout


def _members(
    view: ClusterView, job: RayJobView, ranks: set[ProcessId], now: float
) -> Iterator[MemberStatus]:
    """The driver, if it lives, and the actors that are not ranks."""
    if not job.driver.ended:
        driver = view.ray.driver_track(job)
        yield MemberStatus(
            label="driver",
            role="driver",
            host=driver.process.host if driver is not None else job.driver.address,
            pid=job.driver.pid,
            state=_driver_state(driver),
        )
    actors = ((actor, track) for actor, track in view.ray.actors_of(job))
    shown = 0
    for actor, track in actors:
        if track is not None and track.process in ranks:
            continue
        shown += 1
        if shown > MOST_MEMBERS:
            return
        yield _actor(view, job, actor, track, now)


def _driver_state(track: RayTrack | None) -> str:
    return STATES.get(track.state, "running") if track is not None else "running"


def _actor(
    view: ClusterView, job: RayJobView, actor: RayActor, track: RayTrack | None, now: float
) -> MemberStatus:
    runs = track.runs if track is not None and "." in track.runs else ""
    known = job.methods.get(runs)
    return MemberStatus(
        label=actor.label,
        role=actor.kind,
        host=track.process.host if track is not None else view.host_of(actor.node),
        pid=actor.pid,
        method=runs,
        seconds=round(now - track.began, 3) if track is not None and runs else None,
        usual_seconds=known.lasted.usual if known is not None and known.ended else None,
        state=_actor_state(job, actor, track, now),
    )


def _actor_state(job: RayJobView, actor: RayActor, track: RayTrack | None, now: float) -> str:
    if track is None or actor.state != "ALIVE":
        return "starting" if actor.state != "ALIVE" else "running"
    if track.state in STATES:
        return STATES[track.state]
    if "." not in track.runs:
        return "idle"
    standing = job.standing.get(track.process)
    at_device = standing is not None and standing.at_device and standing.is_sure()
    return "silent" if at_device or now - track.still_since > SILENT else "running"

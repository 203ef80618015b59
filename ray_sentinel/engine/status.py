"""The state of jobs in the words of ``status``."""

from __future__ import annotations

import msgspec

from ray_sentinel.engine.activities import has_nothing_to_do
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.incidents.lifecycle import CONFIRMED
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.phases import JOINING, say_duration
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.ray.status import incidents_beside, ray_jobs
from ray_sentinel.engine.straggling import StragglerWatch
from ray_sentinel.engine.telemetry.alerting import AlertBook
from ray_sentinel.engine.telemetry.inference import Load, loads
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.status import JobStatus, RankStatus, State

SLOW_SILENCE = 3.0
NO_HANG = frozenset({"stall", "slow", "asked", "sentinel", "pending"})
ORDER: tuple[State, ...] = ("healthy", "unknown", "slow", "stalled", "hung")


def describe(
    view: ClusterView,
    incidents: tuple[Incident, ...],
    now: float,
    stragglers: StragglerWatch | None = None,
    alerts: AlertBook | None = None,
) -> tuple[State, str, tuple[JobStatus, ...]]:
    """The worst state of all jobs, its one-sentence summary, and the lines of each job."""
    open_ones = [incident for incident in incidents if incident.state in CONFIRMED]
    served = loads(view, now)
    jobs = tuple(
        msgspec.structs.replace(
            _job(view, job, open_ones, served.get(job.job), now),
            straggler=stragglers.status(job.key, now) if stragglers else None,
            alerts=alerts.of(view, job) if alerts else (),
        )
        for job in view.jobs.values()
        if not job.ray_job
    )
    jobs = (*jobs, *ray_jobs(view, open_ones, now))
    running = [job for job in jobs if not job.ended]
    if not jobs:
        return "unknown", "no training job has been seen yet", ()
    if open_ones:
        worst = max(open_ones, key=lambda i: (i.kind not in NO_HANG, i.suspected_at))
        state = max((job.state for job in jobs), key=ORDER.index)
        return state, worst.summary, jobs
    if not running:
        last = next((i for i in reversed(incidents) if i.kind != "asked"), None)
        said = f"; its last incident: {last.summary}" if last else ""
        return "healthy", f"no job is running{said}", jobs
    state = max((job.state for job in running), key=ORDER.index)
    worst_job = next(job for job in running if job.state == state)
    return state, _sentence(worst_job), jobs


def _sentence(job: JobStatus) -> str:
    age = f"{job.step_age_seconds:.0f} s" if job.step_age_seconds is not None else "a while"
    if job.waits:
        return f"{job.job} waits: {job.waits}"
    if job.members and not job.ranks:
        return f"{job.job} is well: {len(job.members)} processes of Ray in {job.phase}"
    if job.state == "slow":
        return f"{job.job} has made no progress for {age}"
    where = f"at step {job.step}" if job.step is not None else f"in {job.phase}"
    return f"{job.job} is well: {len(job.ranks)} ranks {where}{_slowed(job)}"


def _slowed(job: JobStatus) -> str:
    found = job.straggler
    if found is None or not found.whom:
        return ""
    return f"; {found.whom} slows it down by {found.cost_percent:.0f} %"


def _job(
    view: ClusterView, job: JobView, open_ones: list[Incident], load: Load | None, now: float
) -> JobStatus:
    mine = [i for i in open_ones if (i.job, i.attempt) == job.key and i.kind != "asked"]
    silence = job.silence(now)
    state = _state(job, mine, load, silence, now)
    if ORDER.index(state) < ORDER.index("stalled") and incidents_beside(view, job, open_ones):
        state = "stalled"
    pace = job.pace if len(job.pace) else job.gaps
    present = sorted(job.present, key=lambda rank: rank.rank.id.rank)
    hosts = {node: view.host_of(node) for node in {rank.node for rank in present}}
    return JobStatus(
        job=job.job,
        attempt=job.attempt,
        step=job.step,
        phase=job.phase() if job.live else "ended",
        step_age_seconds=round(silence, 3),
        ranks=tuple(_rank(rank, hosts[rank.node], now) for rank in present),
        state=state,
        world_size=job.world_size,
        step_seconds=pace.usual if len(job.pace) else None,
        expected=_expected(job, now),
        ended=job.ended_at is not None,
        requests=str(load or ""),
    )


def _state(
    job: JobView, mine: list[Incident], load: Load | None, silence: float, now: float
) -> State:
    if any(incident.kind not in NO_HANG for incident in mine):
        return "hung"
    if mine:
        return "stalled"
    if job.ended_at is not None or job.protected_phase(now) or has_nothing_to_do(job):
        return "healthy"
    if load is not None and not load.requests:
        return "healthy"
    slow = max(SLOW_SILENCE, 0.5 * job.timeout())
    return "slow" if job.training() and silence > slow else "healthy"


def _expected(job: JobView, now: float) -> str:
    """The current long phase and its budget: "graph_capture for 4 min, usually up to 9 min"."""
    phase = job.protected_phase(now)
    if not phase:
        return ""
    since = [v.progress.phase_since for v in job.live if v.progress and v.phase == phase]
    begun = min((moment for moment in since if moment is not None), default=job.moved_at())
    usual, budget = job.book.usual(phase), job.book.budget(phase)
    known = f"usually up to {say_duration(usual)}" if usual else f"allowed {say_duration(budget)}"
    missing = job.missing_ranks() if phase == JOINING else []
    absent = f"; {name_ranks(missing)} not there" if missing else ""
    return f"{phase} for {say_duration(max(0.0, now - begun))}, {known}{absent}"


def _rank(rank: RankView, host: str, now: float) -> RankStatus:
    progress = rank.progress
    return RankStatus(
        rank=rank.rank.id.rank,
        host=host,
        pid=rank.rank.process.pid,
        step=progress.step if progress else None,
        state=_rank_state(rank, now),
        phase=rank.phase,
        step_age_seconds=round(max(0.0, now - rank.moved_at), 3),
        attached=rank.attached,
        role=rank.rank.role,
    )


def _rank_state(rank: RankView, now: float) -> str:
    if not rank.alive:
        return "exited"
    for state in ("stopped", "traced", "gil-held", "blocked", "starved"):
        if state in rank.state_since:
            return state
    fact = rank.looks[-1] if rank.looks else None
    if fact is not None and fact.waits_for_others and now - rank.moved_at > SLOW_SILENCE:
        return "waiting"
    return "silent" if now - rank.moved_at > 3 * SLOW_SILENCE else "running"

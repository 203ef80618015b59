"""The state of jobs in the words of ``status``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import starmap

import msgspec

from ray_sentinel.engine.activities import has_nothing_to_do
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.incidents.lifecycle import CONFIRMED
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.phases import JOINING, format_duration
from ray_sentinel.engine.ray.status import incidents_beside, ray_jobs
from ray_sentinel.engine.state import EngineState
from ray_sentinel.engine.telemetry.inference import Load, loads
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.progress import RankSnapshot
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.status import JobStatus, RankStatus, State, Status

SLOW_SILENCE = 3.0
"""Least seconds without progress after which a job is shown as slow."""
NO_HANG = frozenset({"stall", "slow", "asked", "sentinel", "pending"})
HELD = ("stopped", "traced", "gil-held", "blocked", "starved")
"""What keeps a rank from running, as ``RankView.state_since`` has it; the first is told."""
ORDER: tuple[State, ...] = ("healthy", "unknown", "slow", "stalled", "hung")


class RankMoment(msgspec.Struct, frozen=True, gc=False):
    """What a rank's line is made of, none of which changes any more. Thousands are made while
    everything else waits, so the collector does not follow them."""

    rank: Rank
    snapshot: RankSnapshot
    node: str
    moved_at: float
    alive: bool
    states: tuple[str, ...]
    """What holds it: the keys of ``RankView.state_since``."""
    look: StackFact | None
    """The last look at its stacks."""


class StatusPicture:
    """The state of all jobs at one moment, from which the lines are made while the engine goes on:
    those of 8,192 ranks take longer than anything else should wait."""

    def __init__(self, state: EngineState, now: float) -> None:
        view, incidents = state.cluster, state.store.confirmed()
        open_ones, served = _open(incidents), loads(view, now)
        self._jobs: list[tuple[JobStatus, list[RankMoment]]] = [
            (
                msgspec.structs.replace(
                    _job(view, job, open_ones, served.get(job.job), now),
                    straggler=state.stragglers.status(job.key, now),
                    alerts=state.alerts.of(view, job),
                ),
                _seen(job),
            )
            for job in view.jobs.values()
            if not job.ray_job
        ]
        """The line of each job, and what those of its ranks are made of."""
        self._ray_jobs = tuple(ray_jobs(view, open_ones, now))
        self._incidents = incidents
        self._hosts = {key: node.node.host for key, node in view.nodes.items()}
        self._now = now

    def status(self) -> Status:
        """The worst state of all jobs, its verdict, and the lines of each job: what the engine
        knows of the whole status."""
        jobs = (*starmap(self._with_ranks, self._jobs), *self._ray_jobs)
        incidents = self._incidents
        open_ones = _open(incidents)
        running = [job for job in jobs if not job.ended]
        if not jobs:
            return Status(state="unknown", verdict="no training job has been seen yet")
        if open_ones:
            worst = max(open_ones, key=lambda i: (i.kind not in NO_HANG, i.suspected_at))
            state = max((job.state for job in jobs), key=ORDER.index)
            return Status(state=state, verdict=worst.summary, jobs=jobs)
        if not running:
            last = next((i for i in reversed(incidents) if i.kind != "asked"), None)
            said = f"; its last incident: {last.summary}" if last else ""
            return Status(state="healthy", verdict=f"no job is running{said}", jobs=jobs)
        state = max((job.state for job in running), key=ORDER.index)
        worst_job = next(job for job in running if job.state == state)
        return Status(state=state, verdict=_sentence(worst_job), jobs=jobs)

    def _with_ranks(self, line: JobStatus, seen: list[RankMoment]) -> JobStatus:
        ranks = sorted(seen, key=lambda one: one.rank.id.rank)
        lines = tuple(_rank(one, self._hosts, self._now) for one in ranks)
        return msgspec.structs.replace(line, ranks=lines)


def _open(incidents: Iterable[Incident]) -> list[Incident]:
    return [incident for incident in incidents if incident.state in CONFIRMED]


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
    silence, protected = job.silence(now), job.protected_phase(now)
    state = _state(job, mine, load, silence, protected)
    if ORDER.index(state) < ORDER.index("stalled") and incidents_beside(view, job, open_ones):
        state = "stalled"
    return JobStatus(
        job=job.job,
        attempt=job.attempt,
        step=job.step,
        phase=job.phase() if job.live else "ended",
        step_age_seconds=round(silence, 3),
        state=state,
        world_size=job.world_size,
        step_seconds=job.pace.usual,
        expected=_expected(job, protected, now),
        ended=job.ended_at is not None,
        requests=str(load or ""),
    )


def _state(
    job: JobView, mine: list[Incident], load: Load | None, silence: float, protected: str
) -> State:
    if any(incident.kind not in NO_HANG for incident in mine):
        return "hung"
    if mine:
        return "stalled"
    if job.ended_at is not None or protected or has_nothing_to_do(job):
        return "healthy"
    if load is not None and not load.requests:
        return "healthy"
    slow = max(SLOW_SILENCE, 0.5 * job.timeout())
    return "slow" if job.training() and silence > slow else "healthy"


def _expected(job: JobView, phase: str, now: float) -> str:
    """The current long phase and its budget: "graph_capture for 4 min, usually up to 9 min"."""
    if not phase:
        return ""
    since = [v.progress.phase_since for v in job.live if v.progress and v.phase == phase]
    begun = min((moment for moment in since if moment is not None), default=job.moved_at())
    usual, budget = job.book.usual(phase), job.book.budget(phase)
    known = (
        f"usually up to {format_duration(usual)}" if usual else f"allowed {format_duration(budget)}"
    )
    missing = job.missing_ranks() if phase == JOINING else []
    absent = f"; {name_ranks(missing)} not there" if missing else ""
    return f"{phase} for {format_duration(max(0.0, now - begun))}, {known}{absent}"


def _seen(job: JobView) -> list[RankMoment]:
    return [
        RankMoment(
            view.rank,
            view.snapshot,
            view.node,
            view.moved_at,
            view.exit is None and view.gone_at is None,
            tuple(view.state_since) if view.state_since else (),
            view.looks[-1] if view.looks else None,
        )
        for view in job.present
    ]


def _rank(seen: RankMoment, hosts: Mapping[str, str], now: float) -> RankStatus:
    progress, age = seen.snapshot.progress, now - seen.moved_at
    return RankStatus(
        rank=seen.rank.id.rank,
        host=hosts.get(seen.node, seen.node),
        pid=seen.rank.process.pid,
        step=progress.step if progress else None,
        state=_rank_state(seen, age),
        phase=progress.phase if progress else "",
        step_age_seconds=round(max(0.0, age), 3),
        attached=progress is not None,
        role=seen.rank.role,
    )


def _rank_state(seen: RankMoment, age: float) -> str:
    if not seen.alive:
        return "exited"
    for state in HELD if seen.states else ():
        if state in seen.states:
            return state
    if seen.look is not None and seen.look.waits_for_others and age > SLOW_SILENCE:
        return "waiting"
    return "silent" if age > 3 * SLOW_SILENCE else "running"

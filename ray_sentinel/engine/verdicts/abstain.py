"""Verdicts on cases in which no rank has enough evidence against it: a stall, a blind spot, or no
fault at all."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel.engine.activities import all_idle
from ray_sentinel.engine.incidents.case import REQUESTS_RULE, Case
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.verdicts.judgement import Decision, EvidenceScores, Judgement, unnamed
from ray_sentinel.evidence.movement import STILL
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.stacks import StackFact

BLIND_TIMEOUTS = 2.0
"""How many timeouts of silence it takes to judge a job whose ranks nothing tells apart."""
STANDING_TIMEOUTS = 1.3
"""How many timeouts of silence it takes to judge a job in which every rank waits in a collective,
and no thread does anything."""
BLIND_SECONDS_UNATTACHED = 120.0
"""The least seconds of silence for that where no rank counts its steps: movement shows less then.
"""
EVERYDAY_TIMEOUTS = 4.0
"""How many timeouts of silence everyday work may take: a rank whose stack changes counts as slow
until then, and as looping after that; one that saves, loads or compiles is spared."""


def name_nobody(case: Case, scores: EvidenceScores, now: float) -> Judgement:
    """Judge a case in which no rank has enough evidence against it."""
    decision, kind, summary, why = _nobody_because(case, now)
    return Judgement(decision=decision, verdict=unnamed(case, scores, kind, summary), why=why)


def _nobody_because(case: Case, now: float) -> tuple[Decision, FaultKind, str, str]:
    """The decision, the kind, the summary and, unless it is confirmed at once, the reason."""
    job = case.job
    proven_echo = case.findings.get("rank.exited")
    if proven_echo is not None:
        return "confirm", proven_echo.kind, proven_echo.summary, ""
    silence, timeout = job.silence(now), job.timeout()
    facts = [fact for _, fact in case.seen]
    resting = bool(facts) and all_idle(facts)
    unserved = case.findings.get(REQUESTS_RULE)
    if unserved is not None:  # whatever the ranks seem to do
        idle = "; its ranks wait for requests, which nobody hands to them" * resting
        return "confirm", "stall", unserved.summary + idle, ""
    if resting:
        return "dismiss", "unknown", f"{job.job}: its ranks have nothing to do", "idle"
    moving = (v for v in job.live if case.movement(v.rank.process) == "moved")
    slow = [view for view in moving if not _waits(case, view)]
    if slow and silence < EVERYDAY_TIMEOUTS * timeout:
        summary = f"rank {slow[0].rank.id.rank} is slow"
        return "wait", "slow", summary, "slow: its stack still changes"
    outside = case.recorder is not None and case.recorder.kind == "waiting-outside"
    if outside or _all_seen_outside(case, facts):
        summary = f"all {len(job.live)} ranks of {job.job} wait for something outside the job"
        late = "stall.outside" in case.findings
        return "confirm" if late else "wait", "stall", summary, "stall"
    limit = BLIND_TIMEOUTS * timeout
    if _all_stand(case, facts):
        limit = STANDING_TIMEOUTS * timeout
    elif not job.counts_steps:
        limit = max(limit, BLIND_SECONDS_UNATTACHED)
    kind, summary = _describe_indistinct(case, facts)
    return "confirm" if silence >= limit else "wait", kind, summary, "cannot tell who"


def _describe_indistinct(case: Case, facts: Sequence[StackFact]) -> tuple[FaultKind, str]:
    """What is known of a hang in which nothing distinguishes the ranks."""
    job = case.job
    if job.joins():
        return "startup-stuck", f"{job.job} does not start: {_not_joined(job)}"
    recorder, ras = case.recorder, case.ras
    if recorder is not None and recorder.kind == "collective-mismatch" and recorder.evidence:
        return "collective-mismatch", f"{job.job} hangs: {recorder.evidence[0]}"
    seen = f"{len(_waiting(case))} of {len(job.live)} ranks wait in collectives"
    if not facts and recorder is not None and recorder.evidence:
        return "unknown", f"{job.job} hangs: {recorder.evidence[0]}"
    if not facts and ras is not None and ras.evidence:
        return "unknown", f"{job.job} hangs: {ras.evidence[0]}"
    if not facts:
        seen = "there is no stack of any rank"
    hangs = f"{job.job} hangs: {seen}"
    gone = {view.rank.id.rank for key, view in job.ranks.items() if key in job.departed}
    if gone:
        left = f"{name_ranks(gone)} left with nodes that were taken away as announced"
        return "unknown", f"{hangs}, and {left}"
    if not facts:
        return "unknown", f"{hangs}, and nothing else tells them apart"
    return "unknown", f"{hangs} and nothing tells them apart (device or network)"


def _not_joined(job: JobView) -> str:
    """Who is missing from a job whose ranks wait for others to join."""
    here = {view.rank.id.rank for view in job.live}
    if missing := job.missing_ranks():
        return f"{name_ranks(here)} wait for {name_ranks(missing)}, which no agent sees"
    return f"all {len(here)} ranks are there, and wait for others to join"


def _all_seen_outside(case: Case, facts: Sequence[StackFact]) -> bool:
    """Whether every rank is seen where it waits for no other. Ranks at several places, most of
    which do not tell whether they wait for the device and so for the others, are not so seen."""
    unknown = sum(fact.waits_for_others is None for fact in facts)
    alike = len({fact.signature for fact in facts}) == 1
    return bool(facts) and not _waiting(case) and (alike or 2 * unknown <= len(facts))


def _all_stand(case: Case, facts: Sequence[StackFact]) -> bool:
    everyone = len(facts) == len(case.job.live) > 1 and all(f.waits_for_others for f in facts)
    still = all(case.movement(view.rank.process) in STILL for view in case.job.live)
    return everyone and still and all(view.idle for view in case.job.live)


def _waits(case: Case, view: RankView) -> bool:
    fact = case.latest(view.rank.process)
    return fact is not None and bool(fact.waits_for_others)


def _waiting(case: Case) -> set[int]:
    """The ranks that wait for others, by their stack or by their recorder: where the stack is
    Python's alone, the line that waits for the device of a pending operation looks like any
    other."""
    live = case.job.live
    waits = case.recorder.waits if case.recorder is not None else ()
    pending = {wait.rank for wait in waits} & {view.rank.id.rank for view in live}
    return pending | {view.rank.id.rank for view in live if _waits(case, view)}

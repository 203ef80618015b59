"""What people are told of times: the engine's are on a steady clock, theirs on the wall's.

The two differ once a wall clock was set since the coordinator started; ``shift`` is by how many
seconds.
"""

from __future__ import annotations

from msgspec import structs

from ray_sentinel.model.incident import EvidenceItem, Incident, Milestone, Transition, Verdict
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.status import JobStatus
from ray_sentinel.model.straggler import StragglerStatus


def shown_incident(incident: Incident, shift: float) -> Incident:
    """The incident with its times on the wall clock, and by how much they were moved."""
    if not shift:
        return incident
    verdict, straggler = incident.verdict, incident.straggler
    return structs.replace(
        incident,
        suspected_at=incident.suspected_at + shift,
        last_progress=_moved(incident.last_progress, shift),
        job_since=_moved(incident.job_since, shift),
        confirmed_at=_moved(incident.confirmed_at, shift),
        resolved_at=_moved(incident.resolved_at, shift),
        history=tuple(
            Transition(step.at + shift, step.state, step.why) for step in incident.history
        ),
        milestones=tuple(
            Milestone(step.at + shift, step.what, step.text) for step in incident.milestones
        ),
        verdict=_verdict(verdict, shift) if verdict is not None else None,
        straggler=_straggler(straggler, shift) if straggler is not None else None,
        clock_shift=incident.clock_shift + shift,
    )


def shown_job(job: JobStatus, shift: float) -> JobStatus:
    """The same of a job's lines."""
    if not shift:
        return job
    return structs.replace(
        job,
        alerts=tuple(structs.replace(alert, since=alert.since + shift) for alert in job.alerts),
        straggler=_straggler(job.straggler, shift) if job.straggler is not None else None,
    )


def _moved(at: float | None, shift: float) -> float | None:
    return at + shift if at is not None else None


def _verdict(verdict: Verdict, shift: float) -> Verdict:
    return structs.replace(
        verdict,
        evidence=tuple(_item(item, shift) for item in verdict.evidence),
        stacks=tuple(_stack(stack, shift) for stack in verdict.stacks),
    )


def _item(item: EvidenceItem, shift: float) -> EvidenceItem:
    return structs.replace(item, at=item.at + shift) if item.at is not None else item


def _stack(stack: StackFact, shift: float) -> StackFact:
    return structs.replace(stack, at=stack.at + shift) if stack.at else stack


def _straggler(found: StragglerStatus, shift: float) -> StragglerStatus:
    return structs.replace(
        found,
        at=found.at + shift,
        heat=tuple((at + shift, cost) for at, cost in found.heat),
    )

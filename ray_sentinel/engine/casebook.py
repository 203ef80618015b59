"""All incidents and the cases that are open: what is kept of them, and when they end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ray_sentinel.engine.case import OURSELVES, Case
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.milestones import added
from ray_sentinel.engine.nothing_to_do import has_nothing_to_do
from ray_sentinel.engine.table import OPEN, advance
from ray_sentinel.model.incident import Finding, Incident, Milestone, Transition
from ray_sentinel.model.straggler import StragglerStatus

KEPT_INCIDENTS = 1000
"""In memory; the oldest that are over go first."""
ASKED = "user.dump"
REQUESTS_RULE = "stall.requests"
GONE_SECONDS = 60.0
"""After which the job of an incident that was told, and that nobody sees, has ended."""

Key = tuple[str, int, str]
"""Job, attempt, rule."""


class CaseBook:
    """Changed only by the engine. At most one case is open for a job, and one for each rule about
    ourselves."""

    def __init__(self, incidents: Iterable[Incident], after: int = 0) -> None:
        """``incidents`` are known already; new ids count on from theirs, and from ``after``."""
        self.incidents: dict[str, Incident] = {incident.id: incident for incident in incidents}
        self.cases: dict[str, Case] = {}
        self._answered: dict[Key, JobView] = {}
        """Findings that have had their incident, until they are no longer made."""
        known = [int(key) for key in self.incidents if key.isdecimal()]
        self.number = max((after, *known))
        """The highest that was given away."""
        self._told: dict[str, tuple[Incident, float]] = {}
        """Open incidents that were told, and that have no case here; and since when that is so."""

    def open(
        self, finding: Finding, job: JobView, now: float, slowed: StragglerStatus | None = None
    ) -> Case:
        """A new incident, suspected, and its case. ``slowed``: who slowed the job down before."""
        self.number += 1
        incident = Incident(
            id=f"{self.number:04d}",
            job=job.job,
            attempt=job.attempt,
            kind=finding.kind,
            severity=finding.severity,
            state="suspected",
            summary=finding.summary,
            rule=finding.rule,
            suspected_at=now,
            last_progress=job.moved_at(),
            job_since=job.first_seen,
            suspects=finding.suspects,
            straggler=slowed,
            history=(Transition(now, "suspected", finding.summary),),
        )
        case = self.cases[incident.id] = Case(incident, job, now, finding.hard)
        case.findings[finding.rule] = finding
        self.incidents[incident.id] = incident
        return case

    def skip(self, number: int) -> None:
        """New incidents have higher numbers than this."""
        self.number = max(self.number, number)

    def record(self, incident: Incident, now: float) -> None:
        """An incident was made known like this; what a replay makes of it counts less."""
        if incident.id.isdecimal():
            self.skip(int(incident.id))
        self._told.pop(incident.id, None)
        case = self.cases.get(incident.id)
        self.incidents[incident.id] = incident
        if case is not None:
            case.incident = incident
            if incident.state not in OPEN:
                self._close(case)
            elif not case.captures:
                case.recall_captures()
        elif incident.state in OPEN:
            self._told[incident.id] = (incident, now)

    def reopen(self, jobs: Mapping[tuple[str, int], JobView], now: float) -> None:
        """Go on with incidents that were told, and that this replay did not find by itself."""
        for incident, since in list(self._told.values()):
            job = jobs.get((incident.job, incident.attempt))
            if job is not None:
                self._reopen(incident, job, now)
            elif now - since > GONE_SECONDS:
                self.incidents[incident.id] = advance(
                    incident, "resolved", now, "the job has ended"
                )
            else:
                continue
            del self._told[incident.id]

    def _reopen(self, incident: Incident, job: JobView, now: float) -> None:
        finding = Finding(
            rule=incident.rule,
            job=incident.job,
            attempt=incident.attempt,
            kind=incident.kind,
            severity=incident.severity,
            summary=incident.summary,
            suspects=incident.suspects,
        )
        other = self.case_for(finding, job)
        if other is not None:
            # Another number for the same.
            told = other.incident.state != "suspected"
            end = self.resolve if told else self.drop
            end(other, f"it is incident {incident.id}", now)
        case = Case(incident, job, incident.suspected_at, hard=False)
        case.findings[finding.rule] = finding
        case.recall_captures()
        self.cases[incident.id] = case
        self._answered[case.key(finding.rule)] = job

    def keep(self, case: Case, incident: Incident) -> None:
        """The case's incident has changed."""
        case.incident = incident
        self.incidents[incident.id] = incident

    def note(self, incident: str, step: Milestone) -> None:
        """One more step of an incident's timeline, be it over or not."""
        if (case := self.cases.get(incident)) is not None:
            case.note(step)
            self.incidents[incident] = case.incident
        elif (known := self.incidents.get(incident)) is not None:
            steps = added(known.milestones, step)
            self.incidents[incident] = msgspec.structs.replace(known, milestones=steps)

    def confirm(self, case: Case, incident: Incident) -> None:
        """It is sure; what was found is answered until it is found no more."""
        self.keep(case, incident)
        for rule in case.findings:
            self._answered[case.key(rule)] = case.job

    def drop(self, case: Case, why: str, now: float) -> None:
        """It was nothing."""
        self.keep(case, advance(case.incident, "dismissed", now, why))
        del self.cases[case.incident.id]

    def resolve(self, case: Case, why: str, now: float) -> None:
        """It is over."""
        self.keep(case, advance(case.incident, "resolved", now, why))
        self._close(case)

    def _close(self, case: Case) -> None:
        del self.cases[case.incident.id]
        if not case.about_ourselves:
            case.job.exits.forgive()
        for rule in case.findings:
            self._answered.pop(case.key(rule), None)

    def case_for(self, finding: Finding, job: JobView) -> Case | None:
        """The open case that a finding belongs to."""
        ours = finding.rule.startswith(OURSELVES)
        for case in self.of(job):
            if case.about_ourselves == ours and (not ours or case.incident.rule == finding.rule):
                return case
        return None

    def of(self, job: JobView) -> Iterator[Case]:
        """The open cases of a job."""
        return (case for case in self.cases.values() if case.job is job)

    def is_answered(self, finding: Finding, job: JobView) -> bool:
        """It has had its incident, or it follows from one: the job has not moved since."""
        if self._answered.get((finding.job, finding.attempt, finding.rule)) is job:
            return True
        if finding.rule.startswith(OURSELVES):
            return False
        for incident in reversed(self.incidents.values()):
            if (incident.job, incident.attempt) != job.key or incident.confirmed_at is None:
                continue
            if incident.suspected_at < job.first_seen or incident.kind in ("asked", "sentinel"):
                continue
            return job.moved_at() <= incident.confirmed_at
        return False

    def still_found(self, found: set[Key]) -> None:
        """Findings that are made no more may be answered anew when they come back."""
        for key in self._answered.keys() - found:
            del self._answered[key]

    def forget(self) -> None:
        """Let the oldest of too many go; none that is open."""
        while len(self.incidents) > KEPT_INCIDENTS:
            oldest = next((i for i, it in self.incidents.items() if it.state not in OPEN), None)
            if oldest is None:
                return
            del self.incidents[oldest]


def why_over(case: Case, latest: JobView | None, found: set[Key]) -> str:
    """Why a confirmed incident is over; "" while it is not. ``latest``: the job as it is now."""
    job, incident = case.job, case.incident
    still = any(case.key(rule) in found for rule in case.findings)
    if job.ended_at is not None:
        return "the job has ended"
    if latest is not job:
        return "the job was started again"
    if case.about_ourselves:
        return "" if still else "the job is watched again"
    if job.moved_at() > (incident.confirmed_at or 0.0) + 0.5 and not still:
        return "the job moves again"
    if incident.kind == "stall" and REQUESTS_RULE in case.findings and not still:
        return "no request waits in vain any more"  # the ranks themselves may rest by now
    if not still and incident.rule != ASKED and has_nothing_to_do(job):
        return "its ranks have nothing to do"  # a server goes on with the next request only
    if incident.rule == ASKED and incident.state == "explained":
        return "captured as asked"
    return ""

"""The one record of every incident, and the cases of the open ones.

All other parts refer to incidents by id. ``lifecycle`` decides what becomes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from ray_sentinel.engine.incidents.case import OURSELVES, Case
from ray_sentinel.engine.incidents.milestones import added
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.model.incident import Finding, Incident, Milestone

KEPT_INCIDENTS = 1000
"""Most incidents in memory; the oldest closed ones are dropped first."""

Key = tuple[str, int, str]
"""The job, the attempt and the rule of a finding."""


class IncidentStore(msgspec.Struct, kw_only=True):
    """Only the engine changes it. At most one case is open for a job, and one for each rule about
    the sentinel itself."""

    incidents: dict[str, Incident] = {}
    """Incidents by id, newest last."""
    cases: dict[str, Case] = {}
    """Cases of the open incidents, by the incident's id."""
    orphans: dict[str, float] = {}
    """Open incidents whose case is lost, and since when."""
    answered: dict[Key, int] = {}
    """The numbers of the jobs by the findings that have had their incident, until these no longer
    hold."""
    number: int = 0
    """The highest number given to an incident."""

    def take_over(self, incidents: Iterable[Incident], now: float) -> None:
        """Adopt known incidents, without their cases. New incidents continue their numbering."""
        for incident in incidents:
            self.incidents[incident.id] = incident
            if incident.id.isdecimal():
                self.skip(int(incident.id))
            if incident.resolved_at is None:
                self.orphans[incident.id] = now

    def skip(self, number: int) -> None:
        """Number new incidents above this."""
        self.number = max(self.number, number)

    def next_id(self) -> str:
        """The id for a new incident."""
        self.number += 1
        return f"{self.number:04d}"

    def open(self, case: Case, job: JobView, incident: Incident) -> Case:
        """Add a case and its incident."""
        self.incidents[incident.id] = incident
        self.cases[incident.id] = case.bind(self.incidents, job)
        return case

    def keep(self, incident: Incident) -> None:
        """Replace the record of an incident that has changed."""
        self.incidents[incident.id] = incident

    def confirmed(self) -> tuple[Incident, ...]:
        """All but suspicions, the newest last."""
        return tuple(one for one in self.incidents.values() if one.confirmed_at is not None)

    def note(self, incident: str, step: Milestone) -> None:
        """Add a step to an incident's timeline, even if it is over. A published incident shows it
        at once."""
        case, known = self.cases.get(incident), self.incidents.get(incident)
        if case is not None:
            case.milestones = added(case.milestones, step)
        if known is not None and (case is None or known.confirmed_at is not None):
            steps = added(known.milestones, step)
            self.keep(msgspec.structs.replace(known, milestones=steps))

    def adopt(self, incident: Incident, now: float) -> None:
        """Adopt an incident as it was published; this overrides what the events before it led to.
        An incident that this version itself published is already known."""
        known, case = self.incidents.get(incident.id), self.cases.get(incident.id)
        if known == incident:
            return
        ours = incident.rule.startswith(OURSELVES)
        about = (incident.job, incident.attempt, ours)
        if case is not None and about != (*case.job.key, case.about_ourselves):
            # It is another incident with the same number; its findings are made again.
            del self.cases[incident.id]
            for rule in case.findings:
                self.answered.pop(case.key(rule), None)
            known = case = None
        self.take_over((incident,), now)
        if case is None:
            return
        self.orphans.pop(incident.id, None)
        case.milestones = incident.milestones
        if incident.resolved_at is not None:
            self.close(case)
        elif known is not None and known.confirmed_at is None:
            case.count_captures()
            self.answer(case)

    def answer(self, case: Case) -> None:
        """Mark the findings of a case as answered until they no longer hold."""
        for rule in case.findings:
            self.answered[case.key(rule)] = case.job_number

    def close(self, case: Case) -> None:
        """Close the case of a published incident. The same finding may come again, and the exits
        that the incident explained are not raised again."""
        del self.cases[case.incident_id]
        if not case.about_ourselves:
            case.job.exits.mark_explained()
        for rule in case.findings:
            self.answered.pop(case.key(rule), None)

    def case_for(self, finding: Finding, job: JobView) -> Case | None:
        """The open case that a finding belongs to."""
        ours = finding.rule.startswith(OURSELVES)
        for case in self.of(job):
            if case.about_ourselves == ours and (not ours or case.incident.rule == finding.rule):
                return case
        return None

    def of(self, job: JobView) -> Iterator[Case]:
        """The open cases of a job."""
        return (case for case in self.cases.values() if case.job_number == job.number)

    def is_answered(self, finding: Finding, job: JobView) -> bool:
        """Whether the finding has had its incident, or follows from one because the job has not
        moved since."""
        if self.answered.get(finding.key) == job.number:
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
        """Findings that no longer hold may open an incident again when they return."""
        for key in self.answered.keys() - found:
            del self.answered[key]

    def forget(self) -> None:
        """Drop the oldest incidents above the limit, except open ones."""
        while len(self.incidents) > KEPT_INCIDENTS:
            over = (i for i, told in self.incidents.items() if told.resolved_at is not None)
            oldest = next(over, None)
            if oldest is None:
                return
            del self.incidents[oldest]

    def bind(self, jobs: Mapping[int, JobView], now: float) -> None:
        """Give each case its job, by number. A case whose job is gone is dropped."""
        for key, case in list(self.cases.items()):
            job = jobs.get(case.job_number)
            if job is not None and key in self.incidents:
                case.bind(self.incidents, job)
            else:
                del self.cases[key]
                if key in self.incidents:
                    self.orphans[key] = now

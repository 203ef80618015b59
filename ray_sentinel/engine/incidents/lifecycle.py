"""The life of an incident: a state machine, and what the engine does in each state.

``suspected``: a rule found something; evidence is requested. A hard finding (a dead, stopped,
GIL-holding rank, a lost node) is named as soon as one round of stacks has come, or 1.5 s after it
was made; one that is not settled must have lasted for a second. A suspicion is named after two
rounds of stacks. If anything moves before, it is ``dismissed``. ``confirmed``: it is published, and
a capture is requested. ``captured`` and at once ``explained``: its bundle has been written.
``resolved``: the job moves again, has ended, or was started again; where a process was proven to be
unable to go on, that process itself runs again, whatever else moves.
"""

from __future__ import annotations

import msgspec

from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction, Publish
from ray_sentinel.engine.activities import has_nothing_to_do
from ray_sentinel.engine.events import CaptureDone, DumpAsked, RasExplained, RecorderExplained
from ray_sentinel.engine.failures import Failures
from ray_sentinel.engine.incidents import asking, milestones, proof
from ray_sentinel.engine.incidents.case import ASKED, REQUESTS_RULE, Case
from ray_sentinel.engine.incidents.store import Key
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ray.rank_jobs import ray_job_of
from ray_sentinel.engine.ray.verdict import with_chain
from ray_sentinel.engine.state import EngineState
from ray_sentinel.engine.telemetry.hardware import blame_hardware
from ray_sentinel.engine.verdicts.judgement import Judgement
from ray_sentinel.engine.verdicts.last_lines import with_last_lines
from ray_sentinel.engine.verdicts.verdict import judge
from ray_sentinel.errors import InvalidTransitionError
from ray_sentinel.model.fault_kinds import KINDS
from ray_sentinel.model.incident import Finding, Incident, IncidentState, RankLog, Transition

TRANSITIONS: dict[IncidentState, frozenset[IncidentState]] = {
    "suspected": frozenset({"confirmed", "dismissed"}),
    "confirmed": frozenset({"captured", "resolved"}),
    "captured": frozenset({"explained", "resolved"}),
    # A second capture while the hang lasts goes back to captured.
    "explained": frozenset({"captured", "resolved"}),
    "resolved": frozenset(),
    "dismissed": frozenset(),
}

OPEN: frozenset[IncidentState] = frozenset({"suspected", "confirmed", "captured", "explained"})
CONFIRMED: frozenset[IncidentState] = frozenset({"confirmed", "captured", "explained"})

GONE_SECONDS = 60.0
"""Seconds after which the job of an open incident without a case counts as ended if it is not
seen."""
SETTLE = 1.0
"""Seconds that a hard finding must last unless it is settled, because some processes are stopped
only for a moment."""
SETTLED_AFTER_TOOLS = 1.6
"""A snapshot may still show the effect of tools that ran this many seconds before."""
RECORDER_OVERDUE = 6.0
"""Seconds to wait for recorders: ranks that are ending write theirs on the way."""
RECORDER_TURN = 1e-3
"""Additional seconds for each rank: nodes send theirs in turn, and one process reads them all."""
RAY_LOOK_OVERDUE = 12.0
"""Seconds to wait for a look at the Ray job of ranks, once they are suspected."""
ROUND_OVERDUE = 4.0
"""Seconds after which a missing round of stacks is no longer waited for."""
LOOK_AGAIN = 5.0
"""Seconds between rounds while a case waits."""
MOST_CAPTURES = 3
"""Most captures of one case, later looks included."""


def advance(incident: Incident, state: IncidentState, at: float, why: str = "") -> Incident:
    """The incident in its new state, the change added to its history.

    Raises InvalidTransitionError, and changes nothing, where the table has no such step.
    """
    if state not in TRANSITIONS[incident.state]:
        story = tuple(f"{step.state} ({step.why})" for step in incident.history)
        raise InvalidTransitionError(incident.id, incident.state, state, story)
    return msgspec.structs.replace(
        incident,
        state=state,
        confirmed_at=at if state == "confirmed" else incident.confirmed_at,
        resolved_at=at if state in ("resolved", "dismissed") else incident.resolved_at,
        history=(*incident.history, Transition(at, state, why)),
    )


class IncidentLifecycle:
    """Advances incidents and requests evidence by actions. It has no state of its own: incidents
    and their cases belong to the store."""

    def __init__(self, config: Config, state: EngineState, failures: Failures) -> None:
        self._config, self._failures = config, failures
        self._view, self._store = state.cluster, state.store
        self._alerts, self._stragglers = state.alerts, state.stragglers

    def found(self, finding: Finding, now: float) -> list[AnyAction]:
        """A rule has made a finding."""
        job = self._view.jobs[finding.job, finding.attempt]
        case = self._store.case_for(finding, job)
        new = case is not None and (
            case.is_made_worse_by(finding) or case.is_redescribed_by(finding)
        )
        if case is not None and finding.verdict is not None and new:
            case.findings[finding.rule] = finding
            return self._publish(case.with_verdict(case.incident, finding.verdict))
        if self._store.is_answered(finding, job):
            return []
        if case is None:
            return asking.everything(self._suspect(finding, job, now), now)
        if case.incident.state == "suspected":
            if finding.hard and not case.hard:
                case.hard, case.opened_at = True, now
            case.findings[finding.rule] = finding
        return []

    def dump_asked(self, event: DumpAsked, now: float) -> list[AnyAction]:
        """A user asks for a capture of a job, or of all."""
        jobs = [job for job in self._view.jobs.values() if event.job in ("", job.job)]
        return [action for job in jobs for action in self._dump(event, job, now)]

    def _dump(self, event: DumpAsked, job: JobView, now: float) -> list[AnyAction]:
        # A thorough capture shows more than a hang's capture, and is taken once.
        busy = any(
            not case.about_ourselves and (not event.thorough or case.incident.rule == ASKED)
            for case in self._store.of(job)
        )
        if not job.live or busy:
            return []
        finding = Finding(
            rule=ASKED,
            job=job.job,
            attempt=job.attempt,
            kind="asked",
            severity="info",
            summary=f"{job.job}: {event.why}",
        )
        case = self._suspect(finding, job, now)
        self._store.keep(advance(case.incident, "confirmed", now, event.why))
        return self._capture(case, now, thorough=event.thorough)

    def explained(self, event: RecorderExplained | RasExplained, now: float) -> None:
        """Add the result of flight recorders or NCCL's RAS to a case."""
        case = self._store.cases.get(event.incident)
        if case is None:
            return
        if isinstance(event, RecorderExplained):
            case.job.disturbed_until = now + SETTLED_AFTER_TOOLS
            case.recorder, case.recorder_pending = event.facts, False
            self._store.note(event.incident, milestones.of_recorders(now, event.facts))
        else:
            case.ras = event.facts or case.ras
            if event.facts is not None:
                self._store.note(event.incident, milestones.of_ras(now, event.facts))
        if event.facts is not None:
            case.unjudged = case.incident.state != "suspected"

    def captured(self, event: CaptureDone, now: float) -> list[AnyAction]:
        """The bundle has been written, or will be."""
        case = self._store.cases.get(event.incident)
        if case is None or case.incident.state == "suspected":
            return self._bundled_late(event)
        case.capturing = False
        settled = now + SETTLED_AFTER_TOOLS
        for held in case.job.ranks.values():  # also those of which the tools brought nothing
            held.traced_until = min(held.traced_until, settled)
        for fact in event.facts:
            if (view := case.job.ranks.get(fact.process)) is not None:
                view.traced_until = settled
                if fact.runs_python:
                    view.looped_at = now
        case.unjudged |= case.add_captured(event.facts)
        case.job.disturbed_until = now + SETTLED_AFTER_TOOLS
        bundle = event.bundle or case.incident.bundle
        captured = advance(case.incident, "captured", now, "; ".join(event.problems[:3]))
        explained = advance(captured, "explained", now, bundle)
        known = msgspec.structs.replace(explained, bundle=bundle)
        return self._publish(_with_logs(known, event.logs))

    def _bundled_late(self, event: CaptureDone) -> list[AnyAction]:
        """An incident that is over gets its bundle, which the disk did not take before."""
        known = self._store.incidents.get(event.incident)
        if known is None or known.confirmed_at is None or known.bundle or not event.bundle:
            return []
        return self._publish(msgspec.structs.replace(known, bundle=event.bundle))

    def follow(self, case: Case, found: set[Key], now: float) -> list[AnyAction]:
        """The actions that are due for a case now. ``found`` are the findings that still hold."""
        if case.incident.state == "suspected":
            return self._confirm_or_drop(case, found, now)
        return self._watch_the_end(case, found, now)

    def reopen(self, now: float) -> list[AnyAction]:
        """Continue open incidents whose case is lost because an older version of the sentinel began
        it, or because that part of the log is gone."""
        actions: list[AnyAction] = []
        for key, since in list(self._store.orphans.items()):
            incident = self._store.incidents.get(key)
            if incident is not None:
                job = self._view.jobs.get((incident.job, incident.attempt))
                if job is not None:
                    actions += self._reopen(incident, job, now)
                elif now - since > GONE_SECONDS:
                    actions += self._publish_end(incident, "the job has ended", now)
                else:
                    continue
            del self._store.orphans[key]
        return actions

    def _reopen(self, incident: Incident, job: JobView, now: float) -> list[AnyAction]:
        if incident.state == "suspected":
            # The rule finds again what is still suspicious.
            return self._publish_end(incident, "its evidence is lost", now)
        finding = Finding(
            rule=incident.rule,
            job=incident.job,
            attempt=incident.attempt,
            kind=incident.kind,
            severity=incident.severity,
            summary=incident.summary,
            suspects=incident.suspects,
        )
        other = self._store.case_for(finding, job)
        # It is another number for the same incident.
        ended = self._end(other, f"it is incident {incident.id}", now) if other else []
        case = _case(incident, job, incident.suspected_at, finding)
        self._store.open(case, job, incident)
        case.count_captures()
        self._store.answer(case)
        return ended

    def _suspect(self, finding: Finding, job: JobView, now: float) -> Case:
        incident = Incident(
            id=self._store.next_id(),
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
            straggler=self._stragglers.status(job.key, now),
            history=(Transition(now, "suspected", finding.summary),),
        )
        return self._store.open(_case(incident, job, now, finding), job, incident)

    def _publish(self, incident: Incident) -> list[AnyAction]:
        self._store.keep(incident)
        return [Publish(incident=incident)]

    def _end(self, case: Case, why: str, now: float) -> list[AnyAction]:
        if case.incident.state == "suspected":
            del self._store.cases[case.incident_id]
        else:
            self._store.close(case)
        return self._publish_end(case.incident, why, now)

    def _publish_end(self, incident: Incident, why: str, now: float) -> list[AnyAction]:
        """End an incident. One that was only suspected is dismissed without an announcement; for
        others it is announced that they are over."""
        if incident.state == "suspected":
            self._store.keep(advance(incident, "dismissed", now, why))
            return []
        return self._publish(advance(incident, "resolved", now, why))

    def _confirm_or_drop(self, case: Case, found: set[Key], now: float) -> list[AnyAction]:
        for rule in list(case.findings):
            if case.key(rule) not in found:
                del case.findings[rule]
        hard = any(finding.hard for finding in case.findings.values())
        if not case.findings:
            return self._end(case, "it moves again", now)
        if hard:
            settled = any(finding.settled for finding in case.findings.values())
            held = settled or now - case.opened_at >= SETTLE
            if not held or not self._round_settled(case, now):
                return []
            return self._decide(case, self._judge(case, now, proven=True), now)
        case.hard = False
        if not case.answered() and now - case.asked_round_at < ROUND_OVERDUE:
            return []
        if case.asked_round < 2:
            due = now - case.asked_round_at >= self._config.hang.confirm_seconds
            return asking.stacks(case, now) if due else []
        if self._ray_look_to_come(case, now):
            return []
        judgement = self._judge(case, now, proven=False)
        if not judgement.verdict.culprits and _recorders_to_come(case, now):
            return []
        return self._decide(case, judgement, now)

    def _ray_look_to_come(self, case: Case, now: float) -> bool:
        """Whether the ranks are actors of a Ray job, and a look at it may still show that they wait
        for another process."""
        ray_job = ray_job_of(self._view, case.job)
        if ray_job is None or now - case.opened_at > RAY_LOOK_OVERDUE:
            return False
        return (ray_job.looked_at or 0.0) < case.opened_at

    @staticmethod
    def _round_settled(case: Case, now: float) -> bool:
        """Whether to wait no longer for stacks. Beside proof they are worth waiting a second, no
        more, because proof does not need them.

        A finding without a suspect needs the recorders, which may show who it was.
        """
        if case.nobody_suspected() and case.recorder_asked_at is not None:
            return not _recorders_to_come(case, now)
        return case.answered() or now - case.opened_at > 1.5 * SETTLE

    def _judge(self, case: Case, now: float, *, proven: bool) -> Judgement:
        hosts = {node_id: node.node.host for node_id, node in self._view.nodes.items()}
        case.alerts = self._alerts.of(self._view, case.job)
        found = blame_hardware(judge(case, now, host_of=hosts, proven=proven), case)
        told = with_chain(self._view, case.job, found.verdict)
        return msgspec.structs.replace(found, verdict=told)

    def _decide(self, case: Case, judgement: Judgement, now: float) -> list[AnyAction]:
        if judgement.decision == "dismiss":
            return self._end(case, judgement.why, now)
        if judgement.decision == "wait":
            due = now - case.asked_round_at >= LOOK_AGAIN
            if not due:
                return []
            return asking.everything(case, now)
        verdict = judgement.verdict
        confirmed = advance(case.incident, "confirmed", now, verdict.summary)
        self._store.answer(case)
        told = self._publish(case.with_verdict(confirmed, verdict))
        # The announcement must not be lost if the request fails.
        return [*told, *self._failures.guarded("capture", lambda: self._capture(case, now))]

    def _capture(self, case: Case, now: float, *, thorough: bool = False) -> list[AnyAction]:
        """Request everything that says something about the case; nothing if it is about
        ourselves."""
        if case.about_ourselves:
            return []
        verdict = case.incident.verdict
        members = self._view.members(verdict.culprits, case.job) if verdict is not None else ()
        return [asking.capture(case, now, self._config.capture, members, thorough=thorough)]

    def _watch_the_end(self, case: Case, found: set[Key], now: float) -> list[AnyAction]:
        why = self._why_over(case, found, now)
        capturing = case.awaits_capture(now)
        if why and not capturing:
            return self._end(case, why, now)
        again = now - (case.captured_at or now) >= self._config.capture.cooldown_seconds
        if again and not capturing and case.captures < MOST_CAPTURES and not why:
            return self._capture(case, now)
        if case.unjudged and (told := self._publish_culprits(case, now)):
            return told
        withdrawn = KINDS[case.incident.kind].proving_state and case.withdraw(found)
        if withdrawn and (told := self._publish_anew(case, now)):
            return told
        silent = case.key("hang.silent") in found
        return self._search_for_more(case, found, now) if silent and not case.complete else []

    def _why_over(self, case: Case, found: set[Key], now: float) -> str:
        """Why a confirmed incident is over; "" while it is not."""
        still = any(case.key(rule) in found for rule in case.findings)
        still = still or proof.lasts(self._view, case)
        why = _why_job_ended_it(case, self._view.jobs.get(case.job.key), still=still)
        if not why and not still and proof.runs_again(self._view, case, now):
            return "what was held runs again"
        return why

    def _search_for_more(self, case: Case, found: set[Key], now: float) -> list[AnyAction]:
        """Look for more culprits. Beside a proven culprit that still exists, another rank may stand
        still unproven: two more rounds of stacks show that, once the silence is long enough to mean
        something."""
        if not KINDS[case.incident.kind].proving_state:
            return []
        waited = now - case.asked_round_at
        if not case.answered() and waited < ROUND_OVERDUE:
            return []
        if case.later_rounds < 2:
            if waited < self._config.hang.confirm_seconds:
                return []
            case.later_rounds += 1
            return asking.stacks(case, now)
        case.complete = True
        case.withdraw(found)
        return self._publish_anew(case, now)

    def _publish_culprits(self, case: Case, now: float) -> list[AnyAction]:
        """Name a culprit if nobody was named before and later evidence shows who it is."""
        case.unjudged = False
        verdict = case.incident.verdict
        if verdict is None or verdict.culprits:
            return []
        found = self._judge(case, now, proven=False)
        if found.decision != "confirm" or not found.verdict.culprits:
            return []
        told = self._publish(case.with_verdict(case.incident, found.verdict))
        traced = {(process.host, process.pid) for process in case.traced}
        if all((culprit.host, culprit.pid) in traced for culprit in found.verdict.culprits):
            return told  # its bundle has them
        due = case.captures < MOST_CAPTURES and not case.awaits_capture(now)
        return [*told, *(self._capture(case, now) if due else ())]

    def _publish_anew(self, case: Case, now: float) -> list[AnyAction]:
        """Judge a named culprit again, and announce the result if it says more, or where the proof
        of its kind no longer holds."""
        more = self._judge(case, now, proven=False).verdict
        told = case.incident.verdict
        known = {(culprit.host, culprit.pid) for culprit in told.culprits} if told else set()
        named = {(culprit.host, culprit.pid) for culprit in more.culprits}
        if not known <= named or (known == named and not case.withdrawn):
            return []
        verdict = more if case.withdrawn else msgspec.structs.replace(more, kind=case.incident.kind)
        case.withdrawn = False
        return self._publish(case.with_verdict(case.incident, verdict))


def _case(incident: Incident, job: JobView, opened_at: float, finding: Finding) -> Case:
    return Case(
        incident_id=incident.id,
        job_number=job.number,
        opened_at=opened_at,
        asked_round_at=opened_at,
        hard=finding.hard,
        findings={finding.rule: finding},
        milestones=incident.milestones,
    )


def _with_logs(incident: Incident, logs: tuple[RankLog, ...]) -> Incident:
    """The incident and its verdict with what ranks wrote last. An earlier capture may have more
    about a rank than a later one."""
    known = {(log.host, log.pid, log.rank): log for log in incident.logs}
    for log in logs:
        key = (log.host, log.pid, log.rank)
        if log.file or key not in known:
            known[key] = log
    kept, verdict = tuple(known.values()), incident.verdict
    if verdict is not None:
        verdict = with_last_lines(verdict, kept, incident.logs)
    return msgspec.structs.replace(incident, logs=kept, verdict=verdict)


def _recorders_to_come(case: Case, now: float) -> bool:
    """Whether recorders may still come. On a busy machine they come after the stacks, and they may
    show whom to name."""
    asked, overdue = case.recorder_asked_at, recorders_overdue(len(case.job.ranks))
    return case.recorder_pending and asked is not None and now - asked < overdue


def recorders_overdue(ranks: int) -> float:
    """Seconds after which the flight recorders of this many ranks are no longer waited for."""
    return RECORDER_OVERDUE + RECORDER_TURN * ranks


def _why_job_ended_it(case: Case, latest: JobView | None, *, still: bool) -> str:
    """Why an incident is over according to what the job does. ``latest`` is the job's current
    state; ``still`` is whether the evidence lasts."""
    job, incident = case.job, case.incident
    if job.ended_at is not None:
        return "the job has ended"
    if latest is None and not (job.ranks or job.ray_job):
        return "its processes are another job's"
    if latest is not job:
        return "the job was started again"
    if case.about_ourselves:
        return "" if still else "the job is watched again"
    if job.moved_at() > (incident.confirmed_at or 0.0) + 0.5 and not still:
        return "the job moves again"
    if incident.kind == "stall" and REQUESTS_RULE in case.findings and not still:
        return "no request waits in vain any more"  # the ranks themselves may be idle by now
    if not still and incident.rule != ASKED and has_nothing_to_do(job):
        return "its ranks have nothing to do"  # a server goes on with the next request only
    if incident.rule == ASKED and incident.state == "explained":
        return "captured as asked"
    return ""

"""The engine: events in, actions out. It alone changes its state, and only in ``handle``.

A finding opens a *case*. Hard findings (a dead, stopped, GIL-holding rank, a lost node) must hold
for ``SETTLE`` seconds, so that what fell together is named together and echoes are told apart. A
suspicion is confirmed by two rounds of stacks; if anything moves before, it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ray_sentinel.config import Config
from ray_sentinel.engine import status as status_words
from ray_sentinel.engine.actions import (
    AnyAction,
    AskRas,
    AskRecorder,
    ProbeNode,
    Publish,
    TakeStacks,
)
from ray_sentinel.engine.case import Case
from ray_sentinel.engine.cluster import ClusterView, NodeView
from ray_sentinel.engine.events import (
    AnyEvent,
    CaptureDone,
    DumpAsked,
    NodeJoined,
    NodeLeft,
    NodeProbed,
    PhasesRecalled,
    RasExplained,
    RecorderExplained,
    SnapshotReceived,
    StacksTaken,
    Tick,
)
from ray_sentinel.engine.exits import has_own_words
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import load_rules
from ray_sentinel.engine.sampling import routine_samples
from ray_sentinel.engine.table import CONFIRMED, OPEN, advance
from ray_sentinel.engine.targets import capture_of
from ray_sentinel.engine.verdict import Judgement, judge
from ray_sentinel.model.incident import Finding, Incident, Transition
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.status import JobStatus, State

SETTLE = 1.0
RECORDER_OVERDUE = 2.5
ROUND_OVERDUE = 4.0
"""Seconds after which a round of stacks that has not come is done without."""
LOOK_AGAIN = 5.0
"""Seconds between rounds while a case waits."""
PROBE_EVERY = 1.5
TOOLS_SECONDS = 12.0
"""After which tools that were sent to the ranks are believed to be done, come what may."""
SETTLED_AFTER_TOOLS = 1.6
"""An agent's snapshot shows what the tools did up to so many seconds before."""
KEPT_INCIDENTS = 1000
MOST_CAPTURES = 3
MOST_ROUNDS = 60


class Engine:
    """Pure: no input or output, no clock. Times come with the events.

    Raises ConfigError from the constructor where a rule's thresholds are wrong.
    """

    def __init__(self, config: Config | None = None, incidents: Iterable[Incident] = ()) -> None:
        self.config = config or Config()
        self.view = ClusterView(self.config)
        self._rules = load_rules(self.config)
        self._incidents: dict[str, Incident] = {incident.id: incident for incident in incidents}
        self._cases: dict[str, Case] = {}
        self._answered: dict[tuple[str, int, str], JobView] = {}
        """Findings that have had their incident, until they are no longer made."""
        self._number = len(self._incidents)
        self._sampled: dict[tuple[str, int], float] = {}
        self._now = 0.0

    def handle(self, event: AnyEvent) -> list[AnyAction]:
        """Take one event; returns what is to be done about it, in order."""
        self._now = now = max(self._now, event.time)
        match event:
            case SnapshotReceived():
                self.view.take(event.snapshot, now)
                # Exits are hard evidence and come at once: do not wait for the next tick.
                return self._tick(now) if event.snapshot.exits else []
            case Tick():
                return self._tick(now)
            case NodeJoined():
                self.view.nodes.setdefault(event.node.id, NodeView(event.node, now))
            case NodeLeft() | NodeProbed():
                self._node_changed(event, now)
            case StacksTaken():
                return self._stacks(event, now)
            case RecorderExplained():
                if case := self._cases.get(event.incident):
                    case.job.disturbed_until = now + SETTLED_AFTER_TOOLS
                    case.recorder = event.facts
                    case.problems.extend(event.problems)
            case RasExplained():
                if case := self._cases.get(event.incident):
                    case.ras = event.facts or case.ras
                    case.problems.extend(event.problems)
            case CaptureDone():
                return self._captured(event, now)
            case DumpAsked():
                return self._dump(event, now)
            case PhasesRecalled():
                self.view.recall(event.phases)
        return []

    def incidents(self, *, everything: bool = False) -> tuple[Incident, ...]:
        """All that were confirmed, the newest last; with ``everything`` suspicions too."""
        told = self._incidents.values()
        return tuple(i for i in told if everything or i.confirmed_at is not None)

    def status(self, now: float) -> tuple[State, str, tuple[JobStatus, ...]]:
        """The state of the whole, one sentence, and each job's lines."""
        return status_words.describe(self.view, self.incidents(), now)

    def _node_changed(self, event: NodeLeft | NodeProbed, now: float) -> None:
        node = self.view.nodes.get(event.node_id)
        if node is None:
            return
        if isinstance(event, NodeProbed):
            node.alive, node.probed_at = event.alive, now
        else:
            node.left_at, node.expected_leave = now, event.expected
            node.leave_reason = event.reason

    def _tick(self, now: float) -> list[AnyAction]:
        self.view.advance(now)
        actions: list[AnyAction] = [*self._probes(now)]
        found: set[tuple[str, int, str]] = set()
        for rule in self._rules:
            for finding in rule.evaluate(self.view, now):
                found.add((finding.job, finding.attempt, finding.rule))
                actions += self._found(finding, now)
        for key in [key for key in self._answered if key not in found]:
            del self._answered[key]
        for case in list(self._cases.values()):
            actions += self._follow(case, found, now)
        for job, ranks, every in routine_samples(self.view, set(self._jobs_with_cases()), now):
            if now - self._sampled.get(job.key, 0.0) >= every:
                self._sampled[job.key] = now
                actions.append(TakeStacks(incident="", round=0, ranks=ranks))
        self._forget()
        return actions

    def _probes(self, now: float) -> list[AnyAction]:
        limit = self.config.coordinator.lost_snapshots * self.config.agent.snapshot_interval
        asked: list[AnyAction] = []
        for node in self.view.nodes.values():
            due = node.probe_asked_at is None or now - node.probe_asked_at > PROBE_EVERY
            if node.left_at is None and node.seen_at and node.silence(now) > limit - 0.5 and due:
                node.probe_asked_at = now
                asked.append(ProbeNode(node_id=node.node.id))
        return asked

    def _jobs_with_cases(self) -> Iterable[tuple[str, int]]:
        return (case.job.key for case in self._cases.values())

    def _found(self, finding: Finding, now: float) -> list[AnyAction]:
        key = (finding.job, finding.attempt, finding.rule)
        job = self.view.jobs[finding.job, finding.attempt]
        if self._answered.get(key) is job or self._is_echo(job, finding):
            return []
        case = next((c for c in self._cases.values() if c.job is job), None)
        if case is not None:
            if case.incident.state == "suspected":
                if finding.hard and not case.hard:
                    case.hard, case.opened_at = True, now
                case.findings[finding.rule] = finding
            return []
        return self._open(finding, job, now)

    def _is_echo(self, job: JobView, finding: Finding) -> bool:
        """The job has not moved since its incident: what ends now ends because of that."""
        for incident in reversed(self._incidents.values()):
            same = (incident.job, incident.attempt) == job.key and incident.confirmed_at is not None
            if same and incident.suspected_at >= job.first_seen and incident.kind != "asked":
                return job.moved_at() <= (incident.confirmed_at or 0.0)
        return False

    def _open(self, finding: Finding, job: JobView, now: float) -> list[AnyAction]:
        self._number += 1
        incident = Incident(
            id=f"{self._number:04d}",
            job=job.job,
            attempt=job.attempt,
            kind=finding.kind,
            severity=finding.severity,
            state="suspected",
            summary=finding.summary,
            rule=finding.rule,
            suspected_at=now,
            last_progress=job.moved_at(),
            suspects=finding.suspects,
            history=(Transition(now, "suspected", finding.summary),),
        )
        case = Case(incident, job, now, finding.hard)
        case.findings[finding.rule] = finding
        self._incidents[incident.id] = incident
        self._cases[incident.id] = case
        return [
            *self._ask_stacks(case, now),
            *self._ask_recorder(case, now),
            *self._ask_ras(case),
        ]

    def _ask_stacks(self, case: Case, now: float) -> list[AnyAction]:
        ranks = tuple(view.rank for view in case.job.live)
        if not ranks or case.asked_round >= MOST_ROUNDS:
            return []
        case.asked_round += 1
        case.asked_round_at = now
        return [TakeStacks(incident=case.incident.id, round=case.asked_round, ranks=ranks)]

    @staticmethod
    def _ask_recorder(case: Case, now: float) -> list[AnyAction]:
        # One that an exception has ended left its recorder behind.
        ranks = tuple(
            view.rank
            for view in case.job.ranks.values()
            if view.attached and (view.alive or (view.exit and has_own_words(view.exit)))
        )
        if not ranks:
            return []
        case.recorder_asked_at = now
        # The ranks write their dumps: that is no sign of their own.
        case.job.disturbed_until = now + TOOLS_SECONDS
        return [AskRecorder(incident=case.incident.id, ranks=ranks)]

    @staticmethod
    def _ask_ras(case: Case) -> list[AnyAction]:
        ranks = tuple(view.rank for view in case.job.live)
        return [AskRas(incident=case.incident.id, ranks=ranks)] if len(ranks) > 1 else []

    def _follow(self, case: Case, found: set[tuple[str, int, str]], now: float) -> list[AnyAction]:
        if case.incident.state == "suspected":
            return self._confirm_or_drop(case, found, now)
        if case.incident.state in CONFIRMED:
            return self._watch_the_end(case, found, now)
        return []

    def _confirm_or_drop(
        self, case: Case, found: set[tuple[str, int, str]], now: float
    ) -> list[AnyAction]:
        for rule in list(case.findings):
            if _key(case, rule) not in found:
                del case.findings[rule]
        hard = any(finding.hard for finding in case.findings.values())
        if not case.findings:
            return self._drop(case, "it moves again", now)
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
            due = now - case.asked_round_at >= self.config.hang.confirm_seconds
            return self._ask_stacks(case, now) if due else []
        return self._decide(case, self._judge(case, now, proven=False), now)

    @staticmethod
    def _round_settled(case: Case, now: float) -> bool:
        """Stacks of the moment are worth a second, no more: proof does not need them.

        A finding without a suspect needs the recorders, which may show who it was.
        """
        if case.nobody_suspected() and case.recorder_asked_at is not None:
            return case.recorder is not None or now - case.recorder_asked_at > RECORDER_OVERDUE
        return case.answered() or now - case.opened_at > 1.5 * SETTLE

    def _judge(self, case: Case, now: float, *, proven: bool) -> Judgement:
        hosts = {node_id: node.node.host for node_id, node in self.view.nodes.items()}
        return judge(case, now, host_of=hosts, proven=proven)

    def _decide(self, case: Case, judgement: Judgement, now: float) -> list[AnyAction]:
        if judgement.decision == "dismiss":
            return self._drop(case, judgement.why, now)
        if judgement.decision == "wait":
            due = now - case.asked_round_at >= LOOK_AGAIN
            if not due:
                return []
            return [
                *self._ask_stacks(case, now),
                *self._ask_recorder(case, now),
                *self._ask_ras(case),
            ]
        verdict = judgement.verdict
        blamed = {(culprit.rank, culprit.pid) for culprit in verdict.culprits}
        views = [
            view
            for view in case.job.ranks.values()
            if (view.rank.id.rank, view.rank.process.pid) in blamed
        ]
        self._keep(
            case,
            msgspec.structs.replace(
                advance(case.incident, "confirmed", now, verdict.summary),
                kind=verdict.kind,
                severity="warning" if verdict.kind == "stall" else "critical",
                summary=verdict.summary,
                verdict=verdict,
                suspects=tuple(view.rank.id for view in views),
                processes={str(view.rank.id.rank): view.rank.process for view in views},
            ),
        )
        for rule in case.findings:
            self._answered[_key(case, rule)] = case.job
        return [Publish(incident=case.incident), *self._capture(case, now)]

    def _drop(self, case: Case, why: str, now: float) -> list[AnyAction]:
        self._keep(case, advance(case.incident, "dismissed", now, why))
        del self._cases[case.incident.id]
        return []

    def _capture(self, case: Case, now: float) -> list[AnyAction]:
        case.captures += 1
        case.captured_at = now
        case.capturing = True
        case.job.disturbed_until = now + self.config.capture.deadline + TOOLS_SECONDS
        return [capture_of(case)]

    def _watch_the_end(
        self, case: Case, found: set[tuple[str, int, str]], now: float
    ) -> list[AnyAction]:
        job, incident = case.job, case.incident
        why = ""
        if job.ended_at is not None:
            why = "the job has ended"
        elif self.view.jobs.get(job.key) is not job:
            why = "the job was started again"
        elif job.moved_at() > (incident.confirmed_at or now) + 0.5 and not any(
            _key(case, rule) in found for rule in case.findings
        ):
            why = "the job moves again"
        elif incident.rule == "user.dump" and incident.state == "explained":
            why = "captured as asked"
        if why and not case.capturing:
            self._keep(case, advance(incident, "resolved", now, why))
            del self._cases[incident.id]
            job.forgive()
            for rule in case.findings:
                self._answered.pop(_key(case, rule), None)
            return [Publish(incident=case.incident)]
        again = now - (case.captured_at or now) >= self.config.capture.cooldown_seconds
        if again and not case.capturing and case.captures < MOST_CAPTURES and not why:
            return self._capture(case, now)
        return []

    def _stacks(self, event: StacksTaken, now: float) -> list[AnyAction]:
        facts = tuple(msgspec.structs.replace(fact, at=now) for fact in event.facts)
        self._look(facts)
        case = self._cases.get(event.incident)
        if case is None:
            return []
        case.take_round(now, event.round, facts)
        case.problems.extend(event.problems)
        return self._tick(now)

    def _look(self, facts: tuple[StackFact, ...]) -> None:
        by_process = {fact.process: fact for fact in facts}
        for job in self.view.jobs.values():
            for process in by_process.keys() & job.ranks.keys():
                job.ranks[process].look(by_process[process])

    def _captured(self, event: CaptureDone, now: float) -> list[AnyAction]:
        case = self._cases.get(event.incident)
        if case is None:
            return []
        case.capturing = False
        case.job.disturbed_until = now + SETTLED_AFTER_TOOLS
        case.problems.extend(event.problems)
        bundle = event.bundle or case.incident.bundle
        captured = advance(case.incident, "captured", now, "; ".join(event.problems[:3]))
        explained = advance(captured, "explained", now, bundle)
        self._keep(case, msgspec.structs.replace(explained, bundle=bundle))
        return [Publish(incident=case.incident)]

    def _dump(self, event: DumpAsked, now: float) -> list[AnyAction]:
        actions: list[AnyAction] = []
        for job in self.view.jobs.values():
            busy = any(case.job is job for case in self._cases.values())
            if not job.live or (event.job and event.job != job.job) or busy:
                continue
            finding = Finding(
                rule="user.dump",
                job=job.job,
                attempt=job.attempt,
                kind="asked",
                severity="info",
                summary=f"{job.job}: {event.why}",
            )
            self._open(finding, job, now)
            case = next(c for c in self._cases.values() if c.job is job)
            self._keep(case, advance(case.incident, "confirmed", now, event.why))
            actions += self._capture(case, now)
        return actions

    def _keep(self, case: Case, incident: Incident) -> None:
        case.incident = incident
        self._incidents[incident.id] = incident

    def _forget(self) -> None:
        while len(self._incidents) > KEPT_INCIDENTS:
            oldest = next((i for i, it in self._incidents.items() if it.state not in OPEN), None)
            if oldest is None:
                return
            del self._incidents[oldest]


def _key(case: Case, rule: str) -> tuple[str, int, str]:
    return (case.job.job, case.job.attempt, rule)

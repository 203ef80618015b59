"""The engine: events in, actions out. It alone changes its state, and only in ``handle``.

A finding opens a *case*. A hard finding (a dead, stopped, GIL-holding rank, a lost node) is named
as soon as one round of stacks has come, or 1.5 s after it was made; one that is not settled (a
stopped rank, a lost node) must have lasted for a second. A suspicion is confirmed by two rounds of
stacks; if anything moves before, it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ray_sentinel.config import Config
from ray_sentinel.engine import asking, milestones
from ray_sentinel.engine import status as status_words
from ray_sentinel.engine.actions import (
    AnyAction,
    ProbeNode,
    Publish,
    TakeStacks,
)
from ray_sentinel.engine.alerting import AlertBook
from ray_sentinel.engine.announced import note_departed
from ray_sentinel.engine.case import Case
from ray_sentinel.engine.casebook import ASKED, CaseBook
from ray_sentinel.engine.cluster import ClusterView, NodeView
from ray_sentinel.engine.events import (
    AnyEvent,
    CaptureDone,
    DumpAsked,
    IncidentTold,
    NodeDraining,
    NodeJoined,
    NodeLeft,
    NodeProbed,
    NoticeSent,
    PhasesRecalled,
    RasExplained,
    RecorderExplained,
    SnapshotReceived,
    StacksTaken,
    StragglersFound,
    Tick,
)
from ray_sentinel.engine.follow import Follower
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import load_rules
from ray_sentinel.engine.sampling import routine_samples
from ray_sentinel.engine.straggling import StragglerWatch
from ray_sentinel.engine.table import advance
from ray_sentinel.engine.wording import with_last_lines
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.incident import Finding, Incident, Milestone, RankLog
from ray_sentinel.model.memory import Memory
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.status import JobStatus, State

PROBE_EVERY = 1.5
SETTLED_AFTER_TOOLS = 1.6
"""An agent's snapshot shows what the tools did up to so many seconds before."""


class Engine:
    """Pure: no input or output, no clock. Times come with the events.

    Raises ConfigError from the constructor where a rule's thresholds are wrong.
    """

    def __init__(
        self, config: Config | None = None, incidents: Iterable[Incident] = (), after: int = 0
    ) -> None:
        """``incidents`` are known already; ids of new ones are numbers above ``after``."""
        self.config = config or Config()
        self.view = ClusterView(self.config)
        self._rules = load_rules(self.config)
        self.book = CaseBook(incidents, after)
        self._sampled: dict[tuple[str, int], float] = {}
        self._stragglers = StragglerWatch(self.config.stragglers)
        self._alerts = AlertBook(self._rules)
        self._cases = Follower(self.config, self.view, self.book, self._alerts)
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
                self.view.nodes.setdefault(event.node.id, NodeView(event.node, now)).join()
            case NodeLeft() | NodeProbed() | NodeDraining():
                self._node_changed(event, now)
            case StacksTaken():
                return self._stacks(event, now)
            case RecorderExplained() | RasExplained():
                self._explained(event, now)
            case StragglersFound():
                self._stragglers.take(event, now)
            case CaptureDone():
                return self._captured(event, now)
            case DumpAsked():
                return self._dump(event, now)
            case PhasesRecalled():
                self.view.recall(event.phases)
            case IncidentTold() | NoticeSent():
                self._told(event, now)
        return []

    def _told(self, event: IncidentTold | NoticeSent, now: float) -> None:
        if isinstance(event, IncidentTold):
            self.book.record(event.incident, now)
        else:
            self.book.note(event.incident, Milestone(now, "notified", f"as {event.state}"))

    @property
    def now(self) -> float:
        """The time of the last event."""
        return self._now

    def remember(self) -> Memory:
        """What ``recall`` takes: it begins a segment of the log, from which a replay can start."""
        return self.view.remember(self.book.number)

    def recall(self, memory: Memory, now: float) -> None:
        """Take over what another engine knew by ``now``, before any event."""
        self._now = now
        self.book.skip(memory.after)
        self.view.recall_all(memory)

    def _explained(self, event: RecorderExplained | RasExplained, now: float) -> None:
        case = self.book.cases.get(event.incident)
        if case is None:
            return
        if isinstance(event, RecorderExplained):
            case.job.disturbed_until = now + SETTLED_AFTER_TOOLS
            case.recorder, case.recorder_pending = event.facts, False
            self.book.note(event.incident, milestones.of_recorders(now, event.facts))
        else:
            case.ras = event.facts or case.ras
            if event.facts is not None:
                self.book.note(event.incident, milestones.of_ras(now, event.facts))

    def incidents(self, *, everything: bool = False) -> tuple[Incident, ...]:
        """All that were confirmed, the newest last; with ``everything`` suspicions too."""
        told = self.book.incidents.values()
        return tuple(i for i in told if everything or i.confirmed_at is not None)

    def status(self, now: float) -> tuple[State, str, tuple[JobStatus, ...]]:
        """The state of the whole, one sentence, and each job's lines."""
        return status_words.describe(
            self.view, self.incidents(), now, self._stragglers, self._alerts
        )

    def alerts(self) -> tuple[Alert, ...]:
        """What telemetry rules say now, the oldest first."""
        return self._alerts.all()

    def _node_changed(self, event: NodeLeft | NodeProbed | NodeDraining, now: float) -> None:
        node = self.view.nodes.get(event.node_id)
        if node is None:
            return
        if isinstance(event, NodeProbed):
            node.alive = event.alive
        elif isinstance(event, NodeDraining):
            node.drain(now)
        else:
            node.leave(now, event.reason, expected=event.expected)

    def _tick(self, now: float) -> list[AnyAction]:
        self.view.advance(now)
        note_departed(self.view)
        self.book.reopen(self.view.jobs, now)
        actions: list[AnyAction] = [*self._probes(now)]
        found: set[tuple[str, int, str]] = set()
        for rule in self._rules:
            for finding in rule.evaluate(self.view, now):
                found.add((finding.job, finding.attempt, finding.rule))
                actions += self._found(finding, now)
        self._alerts.look(self.view, now)
        self.book.still_found(found)
        for case in list(self.book.cases.values()):
            actions += self._cases.follow(case, found, now)
        for due in routine_samples(self.view, set(self._jobs_with_cases()), now):
            if now - self._sampled.get(due.job.key, 0.0) >= due.every:
                self._sampled[due.job.key] = now
                actions.append(TakeStacks(incident="", round=0, ranks=due.ranks, looks=due.looks))
        actions += self._stragglers.due(self.view, set(self._jobs_with_cases()), now)
        self._forget(now)
        return actions

    def _forget(self, now: float) -> None:
        self.book.forget()
        for key in self._sampled.keys() - self.view.jobs.keys():
            del self._sampled[key]
        busy = set(self._jobs_with_cases())
        for job in self.view.jobs.values():
            # A case looks up what it was told of in the job.
            if job.key not in busy:
                job.forget_replaced(now)

    def _probes(self, now: float) -> list[AnyAction]:
        limit = self.config.coordinator.lost_snapshots * self.config.agent.snapshot_interval
        asked: list[AnyAction] = []
        # One without ranks is nobody's loss, and may be silent for days: its agent was taken off.
        busy = {rank.node for job in self.view.jobs.values() for rank in job.live}
        for node_id, node in self.view.nodes.items():
            due = node.probe_asked_at is None or now - node.probe_asked_at > PROBE_EVERY
            due = due and node_id in busy and node.left_at is None
            if due and node.seen_at and node.silence(now) > limit - 0.5:
                node.probe_asked_at = now
                asked.append(ProbeNode(node_id=node_id))
        return asked

    def _jobs_with_cases(self) -> Iterable[tuple[str, int]]:
        return (case.job.key for case in self.book.cases.values())

    def _found(self, finding: Finding, now: float) -> list[AnyAction]:
        job = self.view.jobs[finding.job, finding.attempt]
        if self.book.is_answered(finding, job):
            return []
        case = self.book.case_for(finding, job)
        if case is not None:
            if case.incident.state == "suspected":
                if finding.hard and not case.hard:
                    case.hard, case.opened_at = True, now
                case.findings[finding.rule] = finding
            return []
        return asking.everything(self._open(finding, job, now), now)

    def _open(self, finding: Finding, job: JobView, now: float) -> Case:
        return self.book.open(finding, job, now, self._stragglers.status(job.key, now))

    def _stacks(self, event: StacksTaken, now: float) -> list[AnyAction]:
        # What came late tells of a moment long ago: what the rank did since counts more.
        at = now if event.asked_at is None else min(now, event.asked_at)
        facts = tuple(msgspec.structs.replace(fact, at=at) for fact in event.facts)
        self._look(facts)
        case = self.book.cases.get(event.incident)
        if case is None:
            return []
        late = event.asked_at is not None
        if late:
            case.complete_round(event.round, facts)
        else:
            case.take_round(now, event.round, facts)
        if facts or not late:
            step = milestones.of_round(now, event.round, facts, late=late)
            self.book.note(event.incident, step)
        return self._tick(now)

    def _look(self, facts: tuple[StackFact, ...]) -> None:
        by_process = {fact.process: fact for fact in facts}
        for job in self.view.jobs.values():
            moved, most = job.moved_at(), job.most_moved_at()
            for process in by_process.keys() & job.ranks.keys():
                job.ranks[process].look(by_process[process], moved, most)

    def _captured(self, event: CaptureDone, now: float) -> list[AnyAction]:
        case = self.book.cases.get(event.incident)
        if case is None:
            return self._bundled_late(event)
        case.capturing = False
        for fact in event.facts:
            if fact.runs_python and (view := case.job.ranks.get(fact.process)) is not None:
                view.looped_at = now
        case.job.disturbed_until = now + SETTLED_AFTER_TOOLS
        bundle = event.bundle or case.incident.bundle
        captured = advance(case.incident, "captured", now, "; ".join(event.problems[:3]))
        explained = advance(captured, "explained", now, bundle)
        known = msgspec.structs.replace(explained, bundle=bundle)
        self.book.keep(case, _with_logs(known, event.logs))
        return [Publish(incident=case.incident)]

    def _bundled_late(self, event: CaptureDone) -> list[AnyAction]:
        """An incident that is over gets its bundle, which the disk did not take before."""
        known = self.book.incidents.get(event.incident)
        if known is None or known.confirmed_at is None or known.bundle or not event.bundle:
            return []
        named = msgspec.structs.replace(known, bundle=event.bundle)
        self.book.incidents[named.id] = named
        return [Publish(incident=named)]

    def _dump(self, event: DumpAsked, now: float) -> list[AnyAction]:
        actions: list[AnyAction] = []
        for job in self.view.jobs.values():
            # A thorough capture tells more than that of a hang, and comes once.
            busy = any(
                not case.about_ourselves and (not event.thorough or case.incident.rule == ASKED)
                for case in self.book.of(job)
            )
            if not job.live or (event.job and event.job != job.job) or busy:
                continue
            finding = Finding(
                rule=ASKED,
                job=job.job,
                attempt=job.attempt,
                kind="asked",
                severity="info",
                summary=f"{job.job}: {event.why}",
            )
            case = self._open(finding, job, now)
            self.book.keep(case, advance(case.incident, "confirmed", now, event.why))
            actions += self._cases.capture(case, now, thorough=event.thorough)
        return actions


def _with_logs(incident: Incident, logs: tuple[RankLog, ...]) -> Incident:
    """The incident and its verdict with what ranks wrote last; an earlier capture may have had more
    of a rank than a later one."""
    known = {(log.host, log.pid, log.rank): log for log in incident.logs}
    for log in logs:
        key = (log.host, log.pid, log.rank)
        if log.file or key not in known:
            known[key] = log
    kept, verdict = tuple(known.values()), incident.verdict
    if verdict is not None:
        verdict = with_last_lines(verdict, kept, incident.logs)
    return msgspec.structs.replace(incident, logs=kept, verdict=verdict)

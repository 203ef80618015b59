"""The engine: events in, actions out. It alone changes its state, and only in ``handle``.

A finding of a rule opens an incident; ``lifecycle`` says what becomes of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec

from ray_sentinel.config import Config
from ray_sentinel.engine import events
from ray_sentinel.engine.actions import (
    AnyAction,
    AskEndedCalls,
    LookAtRayJob,
    ProbeNode,
    Publish,
)
from ray_sentinel.engine.cluster import ClusterView, NodeState
from ray_sentinel.engine.events import AnyEvent
from ray_sentinel.engine.failures import Failures
from ray_sentinel.engine.incidents import asking, milestones
from ray_sentinel.engine.incidents.lifecycle import ROUND_OVERDUE, IncidentLifecycle
from ray_sentinel.engine.incidents.store import IncidentStore, Key
from ray_sentinel.engine.jobs import JobKey
from ray_sentinel.engine.ray.rank_jobs import ray_job_of
from ray_sentinel.engine.ray.waits import late_deployments, may_wait_for
from ray_sentinel.engine.rule import Rule, load_rules
from ray_sentinel.engine.sampling import routine_samples
from ray_sentinel.engine.shedding import drop_oldest
from ray_sentinel.engine.state import EngineState, answers, asks
from ray_sentinel.engine.status import StatusPicture
from ray_sentinel.engine.telemetry.alert_rules import AlertRule
from ray_sentinel.engine.telemetry.inference import below_actors
from ray_sentinel.engine.verdicts.first_exits import note_departed
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.incident import Incident, notified
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.status import Status
from ray_sentinel.waitgraph.picture import pictured

PROBE_EVERY = 1.5
"""Seconds between two probes of a node that has fallen silent."""
HOLD_SECONDS = 6.0
"""Seconds for which events are only taken in after a restart, if no tick comes; the coordinator's
first tick comes after three at most."""


class Engine:
    """Pure: no input or output, no clock. Times come with the events.

    All that it knows is ``state``, whose ``packed`` is its snapshot: an engine that starts from a
    snapshot continues exactly like the one that made it.

    Raises ConfigError from the constructor where a rule's thresholds are wrong.
    """

    def __init__(self, config: Config | None = None, state: EngineState | None = None) -> None:
        """``state`` is the state to continue from."""
        self.config = config or Config()
        self.state = state or EngineState()
        rules = load_rules(self.config)
        self.state.bind(self.config, rules)
        self._rules = [rule for rule in rules if not isinstance(rule, AlertRule)]
        self.failures = Failures()
        self._lifecycle = IncidentLifecycle(self.config, self.state, self.failures)

    @property
    def view(self) -> ClusterView:
        """The nodes and the jobs."""
        return self.state.cluster

    @property
    def store(self) -> IncidentStore:
        """The incidents."""
        return self.state.store

    @property
    def now(self) -> float:
        """The time of the last event."""
        return self.state.now

    def handle(self, event: AnyEvent) -> list[AnyAction]:
        """Process one event. Returns the actions to carry out, in order. Raises nothing, because a
        mistake must neither end the watch nor keep it from starting: ``failures`` has what failed.
        """
        self.state.now = now = max(self.now, event.time)
        if answered := answers(event):
            self.state.unanswered.pop(answered, None)
        part = f"handling {type(event).__name__}"
        actions = self.failures.guarded(part, partial(self._handle, event, now))
        for action in actions:
            if asked := asks(action):
                self.state.unanswered[asked] = action
        return actions

    def _handle(self, event: AnyEvent, now: float) -> list[AnyAction]:
        match event:
            case events.RayTableTold():
                self.view.ray.apply_table(event.table, now)
                self.view.deaths.apply_table(self.view.ray.table)
            case events.RayDeathsTold():
                self.view.deaths.record_deaths(event.deaths, now)
            case events.RayJobLooked():
                self._apply_ray_look(event, now)
            case events.EndedCallsTold():
                if (job := self.view.ray.jobs.get(event.ray_job)) is not None:
                    job.record_times(event.ended, event.changes, now)
                    if event.running is not None:
                        job.long_calls.apply(event.running, now)
            case events.SnapshotReceived():
                self.view.apply(event.snapshot, now)
                self.failures.run(
                    "alerts", lambda: self.state.alerts.continue_round(self.view, self.failures)
                )
                # Exits are hard evidence and come at once: do not wait for the next tick.
                return self._early_tick(now) if event.snapshot.exits else []
            case events.Tick():
                return self._tick(now)
            case events.NodeJoined():
                node = NodeState(node=event.node, joined_at=now)
                self.view.nodes.setdefault(event.node.id, node).join()
            case events.NodeLeft() | events.NodeProbed() | events.NodeDraining():
                self._node_changed(event, now)
            case _:
                return self._answered(event, now)
        return []

    def _answered(self, event: AnyEvent, now: float) -> list[AnyAction]:
        """Process what tools, people and other parts of the coordinator report."""
        match event:
            case events.StacksTaken():
                return self._stacks(event, now)
            case events.RecorderExplained() | events.RasExplained():
                self._lifecycle.explained(event, now)
            case events.StragglersFound():
                self.state.stragglers.record(event, now)
            case events.CaptureDone():
                return self._lifecycle.captured(event, now)
            case events.DumpAsked():
                return self._lifecycle.dump_asked(event, now)
            case events.PhasesRecalled():
                self.view.relearn(event.phases)
            case events.NoticeSent():
                self.store.note(event.incident, notified(now, event.state))
            case events.IncidentTold():
                self.store.adopt(event.incident, now)
            case events.MemoryShort():
                drop_oldest(self.state, now)
            case events.Resumed():
                self.state.held_until = now + HOLD_SECONDS
                self.view.listen(now)
        return []

    def events_of(self, actions: Iterable[AnyAction]) -> list[events.IncidentTold]:
        """The actions of the last event as events that follow it in the log."""
        ids = dict.fromkeys(one.incident.id for one in actions if isinstance(one, Publish))
        known = [self.store.incidents[key] for key in ids if key in self.store.incidents]
        return [events.IncidentTold(time=self.now, incident=incident) for incident in known]

    def unanswered(self) -> list[AnyAction]:
        """Requests that are not answered yet and still wanted."""
        self._forget_questions()
        return list(self.state.unanswered.values())

    def incidents(self, *, everything: bool = False) -> tuple[Incident, ...]:
        """All confirmed incidents, the newest last; with ``everything`` also suspicions."""
        return tuple(self.store.incidents.values()) if everything else self.store.confirmed()

    def status(self, now: float) -> Status:
        """The overall state, its verdict, and the lines of each job."""
        return StatusPicture(self.state, now).status()

    def alerts(self) -> tuple[Alert, ...]:
        """The current alerts of telemetry rules, the oldest first."""
        return self.state.alerts.all()

    def _node_changed(
        self, event: events.NodeLeft | events.NodeProbed | events.NodeDraining, now: float
    ) -> None:
        node = self.view.nodes.get(event.node_id)
        if node is None:
            return
        if isinstance(event, events.NodeProbed):
            node.alive = event.alive
        elif isinstance(event, events.NodeDraining):
            node.drain(now)
        else:
            node.leave(now, event.reason, expected=event.expected)

    def _early_tick(self, now: float) -> list[AnyAction]:
        """A tick for what need not wait for the next one. None right after a restart: others may
        not have been heard yet, and what they report may have come first."""
        return self._tick(now) if now >= self.state.held_until else []

    def _tick(self, now: float) -> list[AnyAction]:
        if self.state.held_until:
            self._resume(now)
        self.view.advance(now)
        note_departed(self.view)
        guarded = self.failures.guarded
        actions = guarded("reopen", lambda: self._lifecycle.reopen(now))
        actions += guarded("probes", lambda: self._probes(now))
        actions += guarded("ray looks", lambda: self._ray_looks(now))
        found: set[Key] = set()
        for rule in self._rules:
            actions += self._evaluate(rule, found, now)
        self.failures.run(
            "alerts", lambda: self.state.alerts.evaluate(self.view, now, self.failures)
        )
        self.store.still_found(found)
        for case in list(self.store.cases.values()):
            name = f"follow {case.incident.rule}"
            actions += guarded(name, partial(self._lifecycle.follow, case, found, now))
        actions += guarded("routine", lambda: self._routine(now))
        self.failures.run("forget", lambda: self._forget(now))
        return actions

    def _evaluate(self, rule: Rule, found: set[Key], now: float) -> list[AnyAction]:
        """Add what a rule finds to ``found``. If the rule fails, its earlier findings stay."""
        guarded, actions, failures = self.failures.guarded, list[AnyAction](), self.failures.count
        findings = guarded(rule.name, lambda: rule.evaluate(self.view, now))
        if self.failures.count > failures:
            found |= {key for key in self.store.answered if key[2] == rule.name}
            cases = self.store.cases.values()
            found |= {case.key(rule.name) for case in cases if rule.name in case.findings}
        for finding in findings:
            found.add(finding.key)
            actions += guarded(rule.name, partial(self._lifecycle.found, finding, now))
        return actions

    def _resume(self, now: float) -> None:
        """Continue after a restart, at the first tick: unanswered requests have just been
        repeated."""
        self.state.held_until = 0.0
        for action in self.unanswered():
            asked = asks(action)
            case = self.store.cases.get(asked[1]) if asked else None
            if case is not None:
                asking.again(case, action, now, self.config.capture)

    def _routine(self, now: float) -> list[AnyAction]:
        """Looks at jobs that have no case."""
        busy = self._jobs_with_cases()
        return [
            *routine_samples(self.view, busy, self.state.sampled, now),
            *self.state.stragglers.due(self.view, busy, now),
        ]

    def _forget(self, now: float) -> None:
        self.store.forget()
        for key in self.state.sampled.keys() - self.view.jobs.keys():
            del self.state.sampled[key]
        self._forget_questions()
        busy = self._jobs_with_cases()
        for job in self.view.jobs.values():
            # A case looks up in the job what its evidence is about.
            if job.key not in busy:
                job.forget_replaced(now)

    def _forget_questions(self) -> None:
        """Drop requests of cases that are over, or that have requested later stacks since."""
        for what, incident, number in list(self.state.unanswered):
            case = self.store.cases.get(incident)
            if case is None or (what == "stacks" and number != case.asked_round):
                del self.state.unanswered[what, incident, number]

    def _probes(self, now: float) -> list[AnyAction]:
        asked: list[AnyAction] = []
        # The loss of a node without ranks harms no job, and it may be silent for days if its agent
        # was taken off.
        busy = self.view.busy_nodes()
        for node_id, node in self.view.nodes.items():
            due = node.probe_asked_at is None or now - node.probe_asked_at > PROBE_EVERY
            due = due and node_id in busy and node.left_at is None
            if due and node.seen_at and node.silence(now) > self.view.lost_after(node) - 0.5:
                node.probe_asked_at = now
                asked.append(ProbeNode(node_id=node_id))
        return asked

    def _ray_looks(self, now: float) -> list[AnyAction]:
        """Looks at Ray jobs in which something is silent, or whose ranks are suspected."""
        view, cases = self.view, self.store.cases.values()
        view.open_incidents = {}
        for case in cases:
            if case.incident.confirmed_at is not None:
                key = case.job.key
                view.open_incidents[key] = (*view.open_incidents.get(key, ()), case.incident_id)
        suspected = (ray_job_of(view, case.job) for case in cases)
        asked_for = [job.id for job in suspected if job is not None]
        deployments = late_deployments(view, now)
        asked_for += sorted(may_wait_for(view, deployments, now))
        due = view.ray.due(now, asked_for, [case.job.ray_job for case in cases])
        for job in due:
            job.asked_at = now
        looks = [
            LookAtRayJob(ray_job=job.id, times=job.wants_times(), deployments=deployments)
            for job in due
        ]
        others = [job for job in view.ray.running() if job not in due]
        untimed = [job for job in others if job.lacks_times(now)]
        for job in untimed:
            job.ask_times(now)
        unwatched = [job for job in others if job.long_calls.is_due(now, job.first_seen)]
        for job in unwatched:
            job.long_calls.asked_at = now
        return [
            *looks,
            *(AskEndedCalls(ray_job=job.id, lenders=job.lenders) for job in untimed),
            *(
                AskEndedCalls(ray_job=job.id, running=True, lenders=job.lenders)
                for job in unwatched
            ),
        ]

    def _apply_ray_look(self, event: events.RayJobLooked, now: float) -> None:
        job = self.view.ray.jobs.get(event.ray_job)
        if job is None:
            return
        look, engines = event.look, below_actors(self.view, now)
        if not look.calls.wakers:  # they are seldom asked for
            calls = msgspec.structs.replace(look.calls, wakers=job.wakers)
            look = msgspec.structs.replace(look, calls=calls)
        found = pictured(look, self.view.process_groups(), engines, job.silence(now))
        seen = next((one for one in found.jobs if one.job == event.ray_job), None)
        job.apply_picture(seen, now, found.notes, look.calls)
        self.view.ray.apply_begins(look.calls, job, now)

    def _jobs_with_cases(self) -> set[JobKey]:
        return {case.job.key for case in self.store.cases.values()}

    def _stacks(self, event: events.StacksTaken, now: float) -> list[AnyAction]:
        facts = self._timed(event, now)
        self._apply_stacks(facts)
        case = self.store.cases.get(event.incident)
        if case is None:
            return []
        late = event.asked_at is not None
        if late:
            case.complete_round(event.round, facts)
        else:
            case.add_round(now, event.round, facts)
        if facts or not late:
            step = milestones.of_round(now, event.round, facts, late=late)
            self.store.note(event.incident, step)
        return self._early_tick(now)

    def _timed(self, event: events.StacksTaken, now: float) -> tuple[StackFact, ...]:
        """The facts with the moments at which they were seen, on our clock: a late answer describes
        a moment long ago, and what the rank did since counts more.

        A node stamps its facts with its wall clock, which may have been set, so the times are
        limited to those between question and answer. Facts without a stamp count as seen now if
        they are on time, or when they were requested if they are late.
        """
        asked = event.asked_at
        usual = now if asked is None else min(now, asked)
        earliest = now - ROUND_OVERDUE if asked is None else usual
        offsets = {
            process: self.view.nodes[rank.node].wall_offset
            for job in self.view.jobs.values()
            for process, rank in job.ranks.items()
            if rank.node in self.view.nodes
        }
        return tuple(
            msgspec.structs.replace(
                fact,
                at=min(now, max(earliest, fact.at + offsets[fact.process]))
                if fact.at and fact.process in offsets
                else usual,
            )
            for fact in event.facts
        )

    def _apply_stacks(self, facts: tuple[StackFact, ...]) -> None:
        by_process = {fact.process: fact for fact in facts}
        for job in self.view.jobs.values():
            moved, most = job.moved_at(), job.most_moved_at()
            for process in by_process.keys() & job.ranks.keys():
                job.ranks[process].apply_stack(by_process[process], moved, most)

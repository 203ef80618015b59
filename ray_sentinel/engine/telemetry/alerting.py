"""The alerts that telemetry rules raise, and the rounds in which the rules look.

All rules are evaluated every five seconds, for one common moment, and the alerts are shown together
when all rules are done. With some hundred nodes a round takes longer than anything else should
wait, so it proceeds in parts, one with each event that arrives, and its progress is part of the
state like everything else. A node is evaluated after its new samples were stored, so a part of a
round may see samples that are newer than the round's moment.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial

import msgspec

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.failures import Failures
from ray_sentinel.engine.jobs import JobKey, JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.rule import Rule
from ray_sentinel.engine.telemetry.alert_rules import (
    AlertRule,
    GpuAlertRule,
    GpuSeen,
    JobAlertRule,
    NodeAlertRule,
    Watched,
    WatchedPart,
)
from ray_sentinel.model.alert import Alert

LOOK_EVERY = 5.0
"""Seconds between two rounds of the telemetry rules; samples come every four."""
LINGER = 30.0
"""Seconds for which an alert outlives the last time that its rule raised it: values flicker."""
AT_ONCE = 64
"""Nodes with ranks up to which a round is done at once: 50 ms with eight GPUs each."""
NODES_A_REPORT = 4
"""Nodes that a round looks at with each report of a node, so that it takes no longer than a quarter
of the time in which all nodes report: 3 ms."""
NODES_A_TICK = 32
"""Nodes that a round looks at with each tick, for while no agent is heard there is nothing else:
25 ms."""


class AlertRound(msgspec.Struct):
    """The progress of one evaluation of all rules."""

    at: float
    """Its moment, for all rules and nodes."""
    known: bool = False
    """What ranks tell about their training has been read."""
    jobs: dict[str, list[JobKey]] | None = None
    """Those that each rule is about, by its name; all that are at work by ``""``."""
    nodes: list[str] = []
    """Those that were not looked at yet; the next one last."""
    judged: str = ""
    """The last of the rules that have looked at jobs; by their names they take turns."""
    seen: dict[str, list[GpuSeen]] = {}
    """What rules keep of GPUs until all were seen, by the rule."""
    raised: dict[str, list[Alert]] = {}
    """By the rule."""


class AlertBook(msgspec.Struct, dict=True):
    """The current alerts. Only the engine changes it. ``bind`` sets the rules."""

    open: dict[tuple[str, str, str, str, str], tuple[Alert, float]] = {}
    """Alerts by ``Alert.key``, each with the time at which it was last raised."""
    looked_at: float = 0.0
    """When the last round began."""
    round: AlertRound | None = None
    """The one that is under way."""

    def bind(self, rules: Iterable[Rule]) -> None:
        """Set the rules; those on telemetry are evaluated here."""
        self._rules = {rule.name: rule for rule in rules if isinstance(rule, AlertRule)}
        judges = (
            one for one in self._rules.values() if isinstance(one, GpuAlertRule | JobAlertRule)
        )
        self._judges = sorted(rule.name for rule in judges)

    def evaluate(self, view: ClusterView, now: float, failures: Failures) -> None:
        """With a tick: begin to evaluate the rules, if it is time, or continue. A rule that fails
        is reported to ``failures``."""
        few = len(view.busy_nodes()) <= AT_ONCE
        if self.round is None:
            if now - self.looked_at < LOOK_EVERY:
                return
            self.looked_at = now
            self.round = AlertRound(at=now)
            if not few:
                return  # a tick has work of its own
        self._step(view, failures, NODES_A_TICK)
        while few and self.round is not None:
            self._step(view, failures, AT_ONCE)

    def continue_round(self, view: ClusterView, failures: Failures) -> None:
        """With a report: evaluate a part of the current round, if there is one."""
        if self.round is not None:
            self._step(view, failures, NODES_A_REPORT)

    def _step(self, view: ClusterView, failures: Failures, most: int) -> None:
        """Evaluate a part of the round: ``most`` nodes, or one step that concerns all of them."""
        under_way = self.round
        if under_way is None:
            return
        if not under_way.known:
            under_way.known = True
            failures.run("scalars", lambda: view.scalars.update(view.jobs.values(), under_way.at))
        elif under_way.jobs is None:
            self._begin(under_way, view, failures)
        elif under_way.nodes:
            nodes = [under_way.nodes.pop() for _ in range(min(most, len(under_way.nodes)))]
            self._evaluate_part(under_way, nodes, view, failures)
        elif (rule := self._next(under_way)) is not None:
            under_way.judged = rule.name
            raised = failures.guarded(rule.name, partial(_judged, rule, under_way, view))
            if raised:
                under_way.raised[rule.name] = raised
        else:
            self._end(under_way)

    def _begin(self, under_way: AlertRound, view: ClusterView, failures: Failures) -> None:
        now, under_way.jobs = under_way.at, {}
        at_work = [job for job in view.jobs.values() if job.at_work(now)]
        under_way.jobs[""] = [job.key for job in at_work]
        for name, rule in self._rules.items():
            jobs = failures.guarded(name, partial(rule.jobs, view, at_work, now))
            if jobs:
                under_way.jobs[name] = [job.key for job in jobs]
        under_way.nodes = sorted(view.busy_nodes(), reverse=True)

    def _evaluate_part(
        self, under_way: AlertRound, nodes: list[str], view: ClusterView, failures: Failures
    ) -> None:
        there = frozenset(nodes)
        # One look at each job: there may be as many as GPUs.
        here = {key: job for key, job in view.jobs.items() if not there.isdisjoint(job.live_nodes)}
        jobs_of = cache(partial(_jobs, under_way, here))
        part = WatchedPart(view, list(watched(view, nodes)), jobs_of, under_way.at)
        at_work = {job.key for job in jobs_of("")}
        for job in here.values():
            view.gpu_levels.learn(part.places(job), under_way.at, working=job.key in at_work)
        for name, rule in self._rules.items():
            if isinstance(rule, NodeAlertRule):
                raised = failures.guarded(name, partial(rule.find_alerts, part))
                if raised:
                    under_way.raised.setdefault(name, []).extend(raised)
            elif isinstance(rule, GpuAlertRule):
                for job in jobs_of(name):
                    seen = failures.guarded(name, partial(rule.read, part, job))
                    under_way.seen.setdefault(name, []).extend(seen)

    def _next(self, under_way: AlertRound) -> AlertRule | None:
        """The next of the rules that look at jobs."""
        at = bisect.bisect_right(self._judges, under_way.judged)
        return self._rules[self._judges[at]] if at < len(self._judges) else None

    def _end(self, under_way: AlertRound) -> None:
        """Show the alerts that were raised, and drop those that were not raised for a while."""
        now = under_way.at
        for name in sorted(under_way.raised):
            for alert in under_way.raised[name]:
                old = self.open.get(alert.key)
                began = old[0].since if old else min(alert.since or now, now)
                self.open[alert.key] = msgspec.structs.replace(alert, since=began), now
        for key in [key for key, (_, said) in self.open.items() if now - said > LINGER]:
            del self.open[key]
        self.round = None

    def all(self) -> tuple[Alert, ...]:
        """The current alerts, the oldest first."""
        return tuple(sorted((alert for alert, _ in self.open.values()), key=lambda a: a.since))

    def of(self, view: ClusterView, job: JobView) -> tuple[Alert, ...]:
        """The alerts about a job: its own, and those of its ranks' hosts, except for other jobs'
        GPUs. Each names the job's ranks that have the GPU."""
        alerts = [alert for alert in self.all() if not alert.job or alert.job == job.job]
        if not alerts:
            return ()
        # Among thousands of ranks, only those that one of the alerts may be about.
        named = {alert.host for alert in alerts}
        mine = {rank.node for rank in job.ranks.values()}
        live = [rank for other in view.jobs.values() for rank in other.live]
        nodes = mine.union(rank.node for rank in live)
        hosts = {node: host for node in nodes if (host := view.host_of(node)) in named}
        own = _gpus(hosts, job.ranks.values())
        taken = _gpus(hosts, live).keys() - own.keys()
        there = {hosts[node] for node in mine if node in hosts}
        return tuple(
            msgspec.structs.replace(alert, ranks=own.get((alert.host, alert.gpu), ()))
            for alert in alerts
            if alert.job == job.job
            or (alert.host in there and (alert.host, alert.gpu) not in taken)
        )


def _gpus(
    hosts: Mapping[str, str], ranks: Iterable[RankView]
) -> dict[tuple[str, str], tuple[int, ...]]:
    """The ranks that were given a GPU, as far as they reported it, on nodes with these hosts; by
    host and index."""
    found: dict[tuple[str, str], set[int]] = {}
    for seen in ranks:
        if seen.node in hosts:
            for gpu in seen.rank.gpus:
                found.setdefault((hosts[seen.node], gpu), set()).add(seen.rank.id.rank)
    return {place: tuple(sorted(numbers)) for place, numbers in found.items()}


def watched(view: ClusterView, nodes: Iterable[str]) -> Iterator[Watched]:
    """The nodes that still exist, and their series."""
    for node_id in nodes:
        node = view.nodes.get(node_id)
        if node is not None and node.left_at is None:
            yield node, view.telemetry.of(node_id)


def _jobs(under_way: AlertRound, there: Mapping[JobKey, JobView], name: str) -> list[JobView]:
    """A rule's jobs that are still there."""
    chosen: Sequence[JobKey] = (under_way.jobs or {}).get(name, ())
    return [there[key] for key in chosen if key in there]


def _judged(rule: AlertRule, under_way: AlertRound, view: ClusterView) -> Iterator[Alert]:
    if isinstance(rule, JobAlertRule):
        yield from rule.find_alerts(view, under_way.at)
    if not isinstance(rule, GpuAlertRule):
        return
    seen: dict[JobKey, list[GpuSeen]] = {}
    for gpu in under_way.seen.get(rule.name, ()):
        seen.setdefault(gpu.job, []).append(gpu)
    for job in _jobs(under_way, view.jobs, rule.name):
        if job.live:  # else it has ended since
            yield from rule.judge(view, job, seen.get(job.key, []), under_way.at)

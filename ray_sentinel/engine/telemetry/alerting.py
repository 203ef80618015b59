"""Telemetry rules, and the alerts that they raise.

A telemetry rule is a rule whose findings open no case: a hot GPU hangs no job. It yields alerts;
they are shown in ``status`` while they last, and are evidence when a job does stop.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import msgspec

from ray_sentinel.engine.cluster import ClusterView, NodeState
from ray_sentinel.engine.failures import Failures
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.rule import Rule
from ray_sentinel.engine.telemetry.series import NodeTelemetry
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.incident import FaultKind, Finding, Severity

LOOK_EVERY = 5.0
"""Seconds between two rounds of the telemetry rules; samples come every four."""
LINGER = 30.0
"""Seconds for which an alert outlives the last time that its rule raised it: values flicker."""


class AlertRule(Rule):
    """Examines the telemetry of nodes with ranks, and yields an alert for each fault."""

    def evaluate(self, view: ClusterView, now: float) -> Iterable[Finding]:
        """No findings: alerts open no case."""
        return ()

    @abc.abstractmethod
    def look(self, view: ClusterView, now: float) -> Iterable[Alert]:
        """Every fault that exists now, including those reported before."""

    def alert(
        self,
        text: str,
        *,
        severity: Severity = "warning",
        kind: FaultKind = "unknown",
        job: str = "",
        host: str = "",
        gpu: str = "",
        port: str = "",
        since: float = 0.0,
    ) -> Alert:
        """An alert of this rule."""
        return Alert(
            rule=self.name,
            severity=severity,
            text=text,
            kind=kind,
            job=job,
            host=host,
            gpu=gpu,
            port=port,
            since=since,
        )


class AlertBook(msgspec.Struct, dict=True):
    """The current alerts. Only the engine changes it. ``bind`` sets the rules."""

    open: dict[tuple[str, str, str, str, str], tuple[Alert, float]] = {}
    """Alerts by ``Alert.key``, each with the time at which it was last raised."""
    looked_at: float = 0.0

    def bind(self, rules: Iterable[Rule]) -> None:
        """Set the rules; those on telemetry are evaluated here."""
        self._rules = [rule for rule in rules if isinstance(rule, AlertRule)]

    def look(self, view: ClusterView, now: float, failures: Failures) -> None:
        """Evaluate the rules, if it is time. A rule that fails is reported to ``failures``."""
        if now - self.looked_at < LOOK_EVERY:
            return
        self.looked_at = now
        view.gpu_levels.learn(view.telemetry, view.jobs.values(), now)
        view.scalars.look(view.jobs.values(), now)
        for rule in self._rules:
            for alert in failures.guarded(rule.name, partial(rule.look, view, now)):
                old = self.open.get(alert.key)
                began = old[0].since if old else min(alert.since or now, now)
                self.open[alert.key] = msgspec.structs.replace(alert, since=began), now
        for key in [key for key, (_, said) in self.open.items() if now - said > LINGER]:
            del self.open[key]

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


def watched(view: ClusterView) -> Iterator[tuple[NodeState, NodeTelemetry]]:
    """Nodes with live ranks, and their series."""
    for node_id in sorted(view.busy_nodes()):
        node = view.nodes.get(node_id)
        if node is not None and node.left_at is None:
            yield node, view.telemetry.of(node_id)


def jobs_at_work(view: ClusterView, now: float) -> list[JobView]:
    """The jobs that train and make progress, so that their levels mean something."""
    return [job for job in view.jobs.values() if job.at_work(now)]

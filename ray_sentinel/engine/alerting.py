"""Telemetry rules: what they are, and what is kept of what they say.

A telemetry rule is a rule whose findings open no case: a hot GPU hangs no job. It yields alerts;
they are shown in ``status`` while they last, and are evidence when a job does stop.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator

import msgspec

from ray_sentinel.engine.cluster import ClusterView, NodeView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import Rule
from ray_sentinel.engine.telemetry import NodeTelemetry
from ray_sentinel.engine.working import at_work
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.incident import Finding

LOOK_EVERY = 5.0
"""Seconds between two rounds of the telemetry rules; samples come every four."""
LINGER = 30.0
"""Seconds that an alert is kept after its rule said it last: values flicker."""


class AlertRule(Rule):
    """Looks at the telemetry of nodes with ranks and says what is wrong now."""

    def evaluate(self, view: ClusterView, now: float) -> Iterable[Finding]:
        """Opens no case."""
        return ()

    @abc.abstractmethod
    def look(self, view: ClusterView, now: float) -> Iterable[Alert]:
        """Everything that is wrong now, also when it was said before."""


class AlertBook:
    """The alerts that last. Changed only by the engine."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = [rule for rule in rules if isinstance(rule, AlertRule)]
        self._open: dict[tuple[str, ...], tuple[Alert, float]] = {}
        self._looked = 0.0

    def look(self, view: ClusterView, now: float) -> None:
        """Evaluate the rules, if it is time."""
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        view.gpu_levels.learn(view, now)
        view.scalars.look(view.jobs.values(), now)
        for rule in self._rules:
            for alert in rule.look(view, now):
                old = self._open.get(alert.key)
                began = old[0].since if old else min(alert.since or now, now)
                self._open[alert.key] = msgspec.structs.replace(alert, since=began), now
        for key in [key for key, (_, said) in self._open.items() if now - said > LINGER]:
            del self._open[key]

    def all(self) -> tuple[Alert, ...]:
        """Those that last, the oldest first."""
        return tuple(sorted((alert for alert, _ in self._open.values()), key=lambda a: a.since))

    def of(self, view: ClusterView, job: JobView) -> tuple[Alert, ...]:
        """Those about a job: its own, and those of the hosts that its ranks are on."""
        hosts = {view.host_of(rank.node) for rank in job.ranks.values()}
        found = []
        for alert in self.all():
            if alert.job == job.job:
                found.append(alert)
            elif not alert.job and alert.host in hosts:
                own = tuple(rank for rank in alert.ranks if _has(view, job, alert, rank))
                # A device of which all owners are known, and are other jobs', is theirs.
                if own or not alert.ranks:
                    found.append(msgspec.structs.replace(alert, ranks=own))
        return tuple(found)


def _has(view: ClusterView, job: JobView, alert: Alert, rank: int) -> bool:
    """Whether it is this job's rank of that number that an alert is about."""
    return any(
        seen.rank.id.rank == rank
        and view.host_of(seen.node) == alert.host
        and (not alert.gpu or not seen.rank.gpus or alert.gpu in seen.rank.gpus)
        for seen in job.ranks.values()
    )


def watched(view: ClusterView) -> Iterator[tuple[NodeView, NodeTelemetry]]:
    """Nodes with live ranks, and their series."""
    busy = {rank.node for job in view.jobs.values() for rank in job.live}
    for node_id in sorted(busy):
        node = view.nodes.get(node_id)
        if node is not None and node.left_at is None:
            yield node, view.telemetry.of(node_id)


def jobs_at_work(view: ClusterView, now: float) -> list[JobView]:
    """All such jobs."""
    return [job for job in view.jobs.values() if at_work(job, now)]


def ranks_of_gpu(view: ClusterView, node_id: str, gpu: str) -> tuple[int, ...]:
    """The ranks that were given a GPU of a node, by its index; none where nobody was told."""
    return tuple(
        sorted(
            rank.rank.id.rank
            for job in view.jobs.values()
            for rank in job.live
            if rank.node == node_id and gpu in rank.rank.gpus
        )
    )

"""What a telemetry rule is: a rule whose findings open no case, because a hot GPU hangs no job.

It yields alerts, which are shown in ``status`` while they last, and are evidence when a job does
stop. Evaluating a thousand nodes takes most of a second, so a rule declares what it looks at (a
node, a GPU of a job, a job as a whole), and ``AlertBook`` evaluates a few of these at a time.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from ray_sentinel.engine.cluster import ClusterView, NodeState
from ray_sentinel.engine.jobs import JobKey, JobView
from ray_sentinel.engine.rule import Rule
from ray_sentinel.engine.telemetry.gpus import UTILISATION, GpuPlace, gpu_places
from ray_sentinel.engine.telemetry.series import NodeTelemetry
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.incident import FaultKind, Finding, Severity

Watched = tuple[NodeState, NodeTelemetry]
"""A node and its series."""


class AlertRule(Rule):
    """Examines telemetry, and yields an alert for each fault that exists now, including those
    reported before. Rules derive from one of the three below."""

    def evaluate(self, view: ClusterView, now: float) -> Iterable[Finding]:
        """Opens no case."""
        return ()

    def jobs(self, view: ClusterView, at_work: Sequence[JobView], now: float) -> Iterable[JobView]:
        """The jobs that the rule is about, chosen once for all nodes; ``at_work`` are those whose
        levels mean something."""
        return ()

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


class WatchedPart:
    """Some of the nodes with ranks, which are looked at together."""

    def __init__(
        self,
        view: ClusterView,
        nodes: Sequence[Watched],
        jobs_of: Callable[[str], Sequence[JobView]],
        now: float,
    ) -> None:
        """``jobs_of`` gives the jobs that were chosen for a rule, by its name."""
        self.view = view
        self.nodes = nodes
        self.jobs_of = jobs_of
        self.now = now
        self._places: dict[JobKey, list[GpuPlace]] = {}
        self._used: dict[tuple[str, str, float], float | None] = {}

    def places(self, job: JobView) -> list[GpuPlace]:
        """The job's GPUs on these nodes."""
        if job.key not in self._places:
            self._places[job.key] = [
                place
                for node, telemetry in self.nodes
                for place in gpu_places(job, node.node.id, telemetry, self.now)
            ]
        return self._places[job.key]

    def utilisation(self, place: GpuPlace, seconds: float) -> float | None:
        """A GPU's utilisation over the last ``seconds``, from 0 to 1; None if it does not report
        it. Several rules ask for the same period."""
        key = (place.node, place.gpu, seconds)
        if key not in self._used:
            series = place.telemetry.one(UTILISATION, self.now, gpu=place.gpu)
            level = series.level(self.now, seconds) or 0.0 if series is not None else None
            self._used[key] = level
        return self._used[key]


class NodeAlertRule(AlertRule):
    """A rule whose alerts about a node depend on no other node."""

    @abc.abstractmethod
    def find_alerts(self, part: WatchedPart) -> Iterable[Alert]:
        """The faults of these nodes."""


class GpuSeen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a rule keeps about one GPU of a job until all have been read."""

    job: JobKey
    node: str
    gpu: str
    value: float = 0.0
    state: str = ""


class GpuAlertRule(AlertRule):
    """Compares the GPUs of a job with each other, or counts them."""

    @abc.abstractmethod
    def read(self, part: WatchedPart, job: JobView) -> Iterable[GpuSeen]:
        """What ``judge`` needs to know about the job's GPUs on these nodes."""

    @abc.abstractmethod
    def judge(
        self, view: ClusterView, job: JobView, seen: Sequence[GpuSeen], now: float
    ) -> Iterator[Alert]:
        """The faults of the job, once all of its GPUs have been read."""


class JobAlertRule(AlertRule):
    """Looks at jobs as a whole."""

    @abc.abstractmethod
    def find_alerts(self, view: ClusterView, now: float) -> Iterable[Alert]:
        """The faults of all jobs."""

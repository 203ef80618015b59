"""The pulse of all jobs, as the page draws it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.last_hour.pulse import PLACES, WIDTH, Pulse
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.identity import ProcessId, Rank
from ray_sentinel.model.last_hour import JobPulse, PulseMark, PulseReport
from ray_sentinel.model.metrics import Event

MOST_JOBS = 12
"""Most jobs in a report: those that moved last."""
MOST_MARKS = 32
"""Most marks of one job: the last ones."""
MOST_TEXT = 120
"""Most characters of a mark's text."""
GPU = ("kernel.xid", "kernel.sxid", "kernel.gpu_lost", "kernel.nvrm", "kernel.amdgpu", "gpu.")
NETWORK = ("kernel.link_down", "kernel.net_timeout", "kernel.mlx5", "net.")
HOST = (
    "kernel.oom", "kernel.hung_task", "kernel.lockup", "kernel.rcu_stall", "kernel.nvme",
    "kernel.disk", "kernel.aer", "kernel.mce", "kernel.hardware_error",
)  # fmt: skip
"""Together with ``GPU`` and ``NETWORK``, the beginnings of the kinds of events that are marked;
others hold no job up."""


_Told = tuple[float, Event]


class PulsePicture:
    """What the pulse of all jobs is made of at one moment, which no later event changes. The report
    is made of it while the engine goes on: for thousands of ranks that takes longer than anything
    else should wait."""

    def __init__(self, view: ClusterView, now: float, alerts: Iterable[Alert]) -> None:
        self._first = first = int(now // WIDTH) - PLACES + 1
        shown = (
            job
            for job in view.by_movement()
            if isinstance(job, JobView) or job.pulse.moved_since(first)
        )
        self._jobs = [_seen(job) for job in islice(shown, MOST_JOBS)]
        self._alerts = [one for one in alerts if one.kind == "network" or one.port]
        self._owners = {node: tuple(jobs.values()) for node, jobs in view.ray.owners.items()}
        self._hosts = {key: node.node.host for key, node in view.nodes.items()}
        self._events = {
            key: tuple(node.events) for key, node in view.telemetry.nodes.items() if node.events
        }

    def report(self) -> PulseReport:
        """The last hour of the jobs."""
        first = self._first
        return PulseReport(
            begin=first * WIDTH,
            width=WIDTH,
            places=PLACES,
            jobs=tuple(job.drawn(first, self._marks(job)) for job in self._jobs),
        )

    def _marks(self, job: _JobSeen) -> tuple[PulseMark, ...]:
        """What happened on its nodes in the report's hour; repetitions on one host within one place
        are one mark."""
        since = self._first * WIDTH
        if job.ray_id is not None:
            nodes = {node for node, jobs in self._owners.items() if job.ray_id in jobs}
        else:
            nodes = {rank.node for rank in job.ranks}
        hosts = {self._hosts.get(node, node) for node in nodes}
        found = [
            PulseMark(at=one.since, about="network", host=one.host, text=_alert_text(one))
            for one in self._alerts
            if one.host in hosts and one.since >= since
        ]
        for node in nodes & self._events.keys():
            found += _events(self._events[node], self._hosts.get(node, node), since)
        together: dict[tuple[str, str, int], PulseMark] = {}
        for mark in sorted(found, key=lambda mark: mark.at):
            key = mark.about, mark.host, int(mark.at // WIDTH)
            known = together.get(key)
            together[key] = replace(known, count=known.count + mark.count) if known else mark
        return tuple(together.values())[-MOST_MARKS:]


class _JobSeen(NamedTuple):
    """One of the jobs."""

    name: str
    attempt: int
    pulse: Pulse
    ray_id: str | None
    """Ray's id of a job that has no ranks; None for a job of ranks."""
    ranks: Sequence[Rank]
    living: Sequence[Rank]
    phases: Mapping[ProcessId, tuple[str, float]]
    """The phase of each process, and since when."""

    def drawn(self, first: int, marks: tuple[PulseMark, ...]) -> JobPulse:
        lanes = self.pulse.shown_lanes(first)
        if self.ray_id is not None:
            return JobPulse(job=self.name, attempt=0, counts="calls", lanes=lanes, marks=marks)
        living = (rank.process for rank in self.living)
        return JobPulse(
            job=self.name,
            attempt=self.attempt,
            counts="steps",
            lanes=lanes,
            phases=self.pulse.shown_phases(first * WIDTH, self.phases, living),
            marks=marks,
        )


def _seen(job: JobView | RayJobView) -> _JobSeen:
    pulse = job.pulse.copied()
    if isinstance(job, RayJobView):
        return _JobSeen(job.name, 0, pulse, ray_id=job.id, ranks=(), living=(), phases={})
    return _JobSeen(
        job.job,
        job.attempt,
        pulse,
        ray_id=None,
        ranks=[view.rank for view in job.ranks.values()],
        living=[view.rank for view in job.live],
        phases=dict(job.phases),
    )


def _events(told: Iterable[_Told], host: str, since: float) -> Iterator[PulseMark]:
    for at, event in told:
        if at < since or event.severity == "info":
            continue
        if event.kind.startswith(GPU):
            yield PulseMark(at=at, about="gpu", host=host, text=_event_text(event))
        elif event.kind.startswith(NETWORK):
            yield PulseMark(at=at, about="network", host=host, text=_event_text(event))
        elif event.kind.startswith(HOST):
            yield PulseMark(at=at, about="host", host=host, text=_event_text(event))


def _event_text(event: Event) -> str:
    xid, gpu = event.attributes.get("xid", ""), event.attributes.get("gpu", "")
    known = " ".join(filter(None, (gpu and f"GPU {gpu}", xid and f"Xid {xid}")))
    return f"{known[:40]}: {event.message}"[:MOST_TEXT] if known else event.message[:MOST_TEXT]


def _alert_text(alert: Alert) -> str:
    return f"{alert.port}: {alert.text}"[:MOST_TEXT] if alert.port else alert.text[:MOST_TEXT]

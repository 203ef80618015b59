"""The pulse of all jobs, as the page draws it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.last_hour.pulse import PLACES, WIDTH
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.pulse import JobPulse, PulseMark, PulseReport

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


def pulse_report(view: ClusterView, now: float, alerts: Iterable[Alert] = ()) -> PulseReport:
    """The last hour of the jobs that moved most recently, with what events and network ``alerts``
    say about their hosts. Other jobs are left out, because the engine waits while the report is
    made."""
    first = int(now // WIDTH) - PLACES + 1
    moved: list[tuple[float, JobView | RayJobView]] = [
        # The view of a Ray job is only a record of incidents; the job itself follows.
        *((job.last_moved, job) for job in view.jobs.values() if not job.ray_job),
        *((job.changed_at, job) for job in view.ray.jobs.values() if job.pulse.moved_since(first)),
    ]
    moved.sort(key=lambda pair: -pair[0])
    shown = moved[:MOST_JOBS]
    network = [one for one in alerts if one.kind == "network" or one.port]
    return PulseReport(
        begin=first * WIDTH,
        width=WIDTH,
        places=PLACES,
        jobs=tuple(_drawn(job, first, _marks(view, job, first, network)) for _, job in shown),
    )


def _marks(
    view: ClusterView, job: JobView | RayJobView, first: int, alerts: Iterable[Alert]
) -> tuple[PulseMark, ...]:
    """What happened on its nodes since place ``first``; repetitions on one host within one place
    are one mark."""
    if isinstance(job, RayJobView):
        nodes = {node for node, owners in view.ray.owners.items() if job.id in owners.values()}
    else:
        nodes = {rank.node for rank in job.ranks.values()}
    hosts = {view.host_of(node) for node in nodes}
    found = [
        PulseMark(at=one.since, about="network", host=one.host, text=_alert_text(one))
        for one in alerts
        if one.host in hosts and one.since >= first * WIDTH
    ]
    found += (mark for node in nodes for mark in _events(view, node, first * WIDTH))
    together: dict[tuple[str, str, int], PulseMark] = {}
    for mark in sorted(found, key=lambda mark: mark.at):
        key = mark.about, mark.host, int(mark.at // WIDTH)
        known = together.get(key)
        together[key] = replace(known, count=known.count + mark.count) if known else mark
    return tuple(together.values())[-MOST_MARKS:]


def _events(view: ClusterView, node: str, since: float) -> Iterator[PulseMark]:
    host = view.host_of(node)
    for at, event in view.telemetry.of(node).events:
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


def _drawn(job: JobView | RayJobView, first: int, marks: tuple[PulseMark, ...]) -> JobPulse:
    lanes = job.pulse.shown_lanes(first)
    if isinstance(job, RayJobView):
        return JobPulse(job=job.name, attempt=0, counts="calls", lanes=lanes, marks=marks)
    living = [rank.rank.process for rank in job.live]
    return JobPulse(
        job=job.job,
        attempt=job.attempt,
        counts="steps",
        lanes=lanes,
        phases=job.pulse.shown_phases(first * WIDTH, job.phases, living),
        marks=marks,
    )

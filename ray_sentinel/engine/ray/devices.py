"""Processes of a Ray job that wait for a device which does not finish: who is to blame.

What a process waits for at its device may be a collective, and so another process that waits at its
own device. Tools that show it (cuda-gdb) do not look at Ray jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.waitgraph.picture import RootMember


def device_kind(
    job: RayJobView, member: RootMember, ranks: Collection[ProcessId]
) -> FaultKind | None:
    """The kind of fault of a process whose device has not finished for too long; ``ranks`` are the
    other ranks of its job, if it is one.

    Nobody is to blame where others of its class or its ranks wait for their devices, too. A rank
    that is elsewhere, and does not wait for this one, may hold it up, and is judged by itself: then
    there is no fault here.
    """
    also = {one.process for one in _also(job, member, ranks)}
    roots = (seen.root for seen in job.roots)
    mine = (root for root in roots if any(one == member for one in root.processes))
    waiting = {process for root in mine for process in root.waiting}
    if not also | waiting >= set(ranks):
        return None
    return "unknown" if also else "device-stuck"


def at_devices_text(job: RayJobView, member: RootMember, ranks: Collection[ProcessId]) -> str:
    """The names of a process and of those that wait for their devices, too.

    For example "Rollout 0, Rollout 1 and Rollout 2".
    """
    labels = [member.label, *(one.label for one in _also(job, member, ranks))]
    return " and ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))


def _also(
    job: RayJobView, member: RootMember, ranks: Collection[ProcessId]
) -> Iterator[RootMember]:
    """The others of its class or ranks that wait for their devices, and have for two looks."""
    for one in job.standing.values():
        other = one.member
        is_peer = other.role == member.role or other.process in ranks
        if one.at_device and one.is_sure() and is_peer and other.process != member.process:
            yield other

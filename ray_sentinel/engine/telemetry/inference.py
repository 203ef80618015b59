"""The load that inference servers report: their requests, and whether they make progress."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.telemetry.series import TelemetrySeries
from ray_sentinel.evidence.server_load import (
    FINISHED_METRIC,
    LONGEST_METRIC,
    MOVING,
    REQUESTS_METRIC,
    SERVE,
)
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.waitgraph.engine_work import EngineWork

REPLICA = "ServeReplica:"
"""The beginning of the class names of Ray Serve's replicas, which are
``ServeReplica:APPLICATION:DEPLOYMENT``."""
STILL_SECONDS = 15.0
"""Seconds without a change in any of them, although there are requests, from which an engine hangs;
they are read every five seconds."""


class Load(msgspec.Struct, frozen=True):
    """The current requests of a server, and for how many seconds it has had requests without any
    change in its counters."""

    running: int
    waiting: int
    still_seconds: float

    @property
    def requests(self) -> int:
        """Running and waiting requests. An engine without any has nothing to do, whatever its
        stacks look like."""
        return self.running + self.waiting

    def __str__(self) -> str:
        """The load for people: "3 running, 12 waiting requests"."""
        return f"{self.running} running, {self.waiting} waiting requests"


def loads(view: ClusterView, now: float) -> dict[str, Load]:
    """The load by job, of the servers that report it."""
    requests: dict[str, dict[str, float]] = {}
    seen: dict[str, float] = {}
    moved: dict[str, float] = {}
    for name, job, state, series in _series(view, now):
        moved[job] = max(moved.get(job, 0.0), _changed_at(series))
        if name == REQUESTS_METRIC:
            count = requests.setdefault(job, {})
            count[state] = count.get(state, 0.0) + series.last
            seen[job] = max(seen.get(job, 0.0), series.at)
    return {
        job: Load(
            int(count.get("running", 0)), int(count.get("waiting", 0)), seen[job] - moved[job]
        )
        for job, count in requests.items()
    }


class ServedRequests(msgspec.Struct, frozen=True):
    """The usual request times of a server that is working on a request."""

    longest: float
    """Seconds that the longest of the answered requests took."""
    ended: int
    ended_at: float
    """When the last of the reported requests was answered."""


def served(view: ClusterView, now: float) -> dict[str, ServedRequests]:
    """The requests by job, of the servers that report them and have one now."""
    running = {job for job, load in loads(view, now).items() if load.running}
    longest: dict[str, float] = {}
    ended: dict[str, float] = {}
    ended_at: dict[str, float] = {}
    for name, job, _, series in _series(view, now, (FINISHED_METRIC, LONGEST_METRIC)):
        if name == LONGEST_METRIC:
            longest[job] = max(longest.get(job, 0.0), series.last)
        else:
            ended[job] = ended.get(job, 0.0) + series.last
            ended_at[job] = max(ended_at.get(job, 0.0), _changed_at(series))
    return {
        job: ServedRequests(longest[job], int(ended[job]), ended_at[job])
        for job in sorted(running & longest.keys() & ended.keys())
    }


def deployment_of(kind: str) -> str:
    """The job name of the deployment of which an actor of the class ``kind`` is a replica; empty if
    it is not one.

    >>> deployment_of("ServeReplica:default:Model")
    'serve-default-Model'
    """
    application, _, deployment = kind.removeprefix(REPLICA).partition(":")
    return f"{SERVE}{application}-{deployment}" if kind.startswith(REPLICA) else ""


def below_actors(view: ClusterView, now: float) -> dict[ProcessId, EngineWork]:
    """What the engines that run below Ray processes do."""
    told = loads(view, now)
    return {
        track.process: EngineWork(
            name=track.engine, requests=str(load), still=load.still_seconds >= STILL_SECONDS
        )
        if load.requests
        else EngineWork(name=track.engine)
        for tracks in (view.ray.tracks.values() if told else ())
        for track in tracks.values()
        if (load := told.get(track.engine)) is not None
    }


def _series(
    view: ClusterView, now: float, names: tuple[str, ...] = MOVING
) -> Iterator[tuple[str, str, str, TelemetrySeries]]:
    """Name, job, state and values of every series of a server."""
    for node in view.telemetry.nodes.values():
        if not node.has(REQUESTS_METRIC):
            continue
        for name in names:
            for labels, series in node.get(name, now):
                yield name, labels.get("job", ""), labels.get("state", ""), series


def _changed_at(series: TelemetrySeries) -> float:
    """When its value last changed; where it never did, when it was first seen."""
    at, value = series.at, series.last
    for earlier, other in series.newest_first():
        if other != value:
            break
        at = earlier
    return at

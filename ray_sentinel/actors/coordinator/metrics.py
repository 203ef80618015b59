"""The metrics of the coordinator, ``ray_sentinel_*``, which the head's agent serves. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from ray_sentinel.actors.metrics import MEMORY, MEMORY_LIMIT
from ray_sentinel.engine.incidents.lifecycle import CONFIRMED
from ray_sentinel.engine.shedding import PARTS
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.metrics import Family, Metric
from ray_sentinel.model.status import CoordinatorStatus

NODES = Metric("ray_sentinel_agent_nodes", "gauge", "Nodes whose agent reports.")
UNWATCHED = Metric("ray_sentinel_nodes_unwatched", "gauge", "Living Ray nodes without an agent.")
CYCLE = Metric(
    "ray_sentinel_coordinator_cycle_seconds", "gauge", "Wall time of the coordinator's last cycle."
)
LAST_CYCLE = Metric(
    "ray_sentinel_coordinator_last_cycle_timestamp_seconds",
    "gauge",
    "When the coordinator's last cycle ended.",
)
REPORTS = Metric("ray_sentinel_reports_total", "counter", "Agents' reports that were taken.")
REPORTS_DUE = Metric(
    "ray_sentinel_reports_due_per_second",
    "gauge",
    "Reports that all agents make in a second while nothing happens on their nodes.",
)
RELAYED = Metric(
    "ray_sentinel_relayed_reports_total", "counter", "Those of them that came by way of relays."
)
RELAYS = Metric("ray_sentinel_relays", "gauge", "Actors that hand on the reports of some agents.")
RELAYS_WANTED = Metric(
    "ray_sentinel_relays_wanted", "gauge", "How many there are to be, for so many nodes."
)
SERIES_BYTES = Metric(
    "ray_sentinel_series_bytes", "gauge", "Memory of the nodes' series that rules and history read."
)
SERIES_LIMIT = Metric(
    "ray_sentinel_series_limit_bytes", "gauge", "Most of it; the oldest go beyond that."
)
LOG_WAITING = Metric(
    "ray_sentinel_event_log_waiting_bytes", "gauge", "Events that wait for the disk."
)
LOG_MISSING = Metric(
    "ray_sentinel_event_log_missing_total", "counter", "Events that the disk did not take in time."
)
LOG_WAITING_LIMIT = Metric(
    "ray_sentinel_event_log_waiting_limit_bytes", "gauge", "Most of them; others go missing."
)
SHED = Metric(
    "ray_sentinel_memory_shed_total",
    "counter",
    "Times that less was kept of a part to stay within the limit of memory.",
    ("part",),
)
INCIDENTS = Metric(
    "ray_sentinel_incidents_total", "counter", "Confirmed incidents.", ("kind", "severity")
)
ACTIVE = Metric(
    "ray_sentinel_incident_active", "gauge", "1 while an incident lasts.", ("job", "kind")
)


class CoordinatorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A coordinator's figures about its own work."""

    nodes: int
    """How many nodes have agents that report."""
    unwatched: int
    reports: int
    """How many reports were accepted since its start."""
    relayed: int
    """How many of them came by way of relays."""
    last_cycle: float | None
    """When the engine's last cycle was, in Unix seconds."""
    work: CoordinatorStatus


def coordinator_families(
    told: CoordinatorFigures, incidents: Iterable[Incident]
) -> tuple[Family, ...]:
    """The metrics that the head's agent serves for the coordinator."""
    known = [incident for incident in incidents if incident.kind != "asked"]
    total = Counter((incident.kind, incident.severity) for incident in known)
    active = {(i.job, i.kind) for i in known if i.state in CONFIRMED}
    work = told.work
    # A series that begins with its first case would show no growth to alert on.
    shed = dict.fromkeys(PARTS, 0) | work.shed
    families = [
        Family(NODES, (NODES(float(told.nodes)),)),
        Family(UNWATCHED, (UNWATCHED(float(told.unwatched)),)),
        Family(REPORTS, (REPORTS(float(told.reports)),)),
        Family(RELAYED, (RELAYED(float(told.relayed)),)),
        Family(RELAYS, (RELAYS(float(work.relays)),)),
        Family(RELAYS_WANTED, (RELAYS_WANTED(float(work.relays_wanted)),)),
        Family(REPORTS_DUE, (REPORTS_DUE(work.reports_due_per_second),)),
        Family(MEMORY, (MEMORY(float(work.memory_bytes), "coordinator"),)),
        Family(MEMORY_LIMIT, (MEMORY_LIMIT(float(work.memory_limit_bytes), "coordinator"),)),
        Family(SHED, tuple(SHED(float(n), part) for part, n in sorted(shed.items()))),
        Family(SERIES_BYTES, (SERIES_BYTES(float(work.series_bytes)),)),
        Family(SERIES_LIMIT, (SERIES_LIMIT(float(work.series_limit_bytes)),)),
        Family(LOG_WAITING, (LOG_WAITING(float(work.log_waiting_bytes)),)),
        Family(LOG_WAITING_LIMIT, (LOG_WAITING_LIMIT(float(work.log_waiting_limit_bytes)),)),
        Family(LOG_MISSING, (LOG_MISSING(float(work.log_missing)),)),
        Family(INCIDENTS, tuple(INCIDENTS(float(n), *key) for key, n in sorted(total.items()))),
        Family(ACTIVE, tuple(ACTIVE(1.0, *key) for key in sorted(active))),
    ]
    if work.cycle_seconds is not None:
        families.append(Family(CYCLE, (CYCLE(work.cycle_seconds),)))
    if told.last_cycle is not None:
        families.append(Family(LAST_CYCLE, (LAST_CYCLE(told.last_cycle),)))
    return tuple(family for family in families if family.samples)

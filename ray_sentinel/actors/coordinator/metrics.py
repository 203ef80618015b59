"""The metrics of the coordinator, ``ray_sentinel_*``, which the head's agent serves. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ray_sentinel.actors.metrics import MEMORY, MEMORY_LIMIT
from ray_sentinel.engine.incidents.lifecycle import CONFIRMED
from ray_sentinel.engine.shedding import PARTS
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.metrics import Family, Metric, families_of
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


def coordinator_families(
    work: CoordinatorStatus,
    incidents: Iterable[Incident],
    *,
    nodes: int,
    unwatched: int,
    reports: int,
    relayed: int,
    last_cycle: float | None,
) -> tuple[Family, ...]:
    """The metrics that the head's agent serves for the coordinator. ``nodes`` have agents that
    report; ``reports`` were accepted since its start, ``relayed`` of them by way of relays;
    ``last_cycle`` is when the engine's last cycle was, in Unix seconds."""
    known = [incident for incident in incidents if incident.kind != "asked"]
    total = Counter((incident.kind, incident.severity) for incident in known)
    active = {(i.job, i.kind) for i in known if i.state in CONFIRMED}
    # A series that begins with its first case would show no growth to alert on.
    shed = dict.fromkeys(PARTS, 0) | work.shed
    return families_of(
        [
            (NODES, nodes),
            (UNWATCHED, unwatched),
            (REPORTS, reports),
            (RELAYED, relayed),
            (RELAYS, work.relays),
            (RELAYS_WANTED, work.relays_wanted),
            (REPORTS_DUE, work.reports_due_per_second),
            (MEMORY, work.memory_bytes, "coordinator"),
            (MEMORY_LIMIT, work.memory_limit_bytes, "coordinator"),
            *((SHED, count, part) for part, count in sorted(shed.items())),
            (SERIES_BYTES, work.series_bytes),
            (SERIES_LIMIT, work.series_limit_bytes),
            (LOG_WAITING, work.log_waiting_bytes),
            (LOG_WAITING_LIMIT, work.log_waiting_limit_bytes),
            (LOG_MISSING, work.log_missing),
            *((INCIDENTS, count, *key) for key, count in sorted(total.items())),
            *((ACTIVE, 1, *key) for key in sorted(active)),
            (CYCLE, work.cycle_seconds),
            (LAST_CYCLE, last_cycle),
        ]
    )

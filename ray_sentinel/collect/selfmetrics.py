"""Metrics about the collectors themselves: a monitor that sees nothing must not look healthy.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ray_sentinel.model.metrics import CollectorStatus, Family, Metric, families_of

_LABELS = ("collector",)
SUCCESS = Metric(
    "ray_sentinel_collector_success", "gauge", "Whether the last run succeeded.", _LABELS
)
DURATION = Metric(
    "ray_sentinel_collector_duration_seconds", "gauge", "Wall time of the last run.", _LABELS
)
LAST_SUCCESS = Metric(
    "ray_sentinel_collector_last_success_timestamp_seconds",
    "gauge",
    "When the last run that succeeded ended.",
    _LABELS,
)
TIMEOUTS = Metric(
    "ray_sentinel_collector_timeouts_total", "counter", "Runs that missed their deadline.", _LABELS
)
RESTARTS = Metric(
    "ray_sentinel_collector_restarts_total",
    "counter",
    "Times that the collector's process was started again.",
    _LABELS,
)
STATE = Metric(
    "ray_sentinel_collector_state",
    "gauge",
    "1 for the state that the collector is in, 0 for the others; none before its first run.",
    ("collector", "state"),
)
UNKILLABLE = Metric(
    "ray_sentinel_collector_unkillable_processes",
    "gauge",
    "Processes of the collector that SIGKILL could not end.",
    _LABELS,
)
CYCLE = Metric(
    "hw_scrape_duration_seconds",
    "gauge",
    "Wall time of a whole collection cycle: collectors run side by side, so of the longest one.",
)
STATES = ("running", "skipped", "quarantined", "stuck")


def families(statuses: Iterable[CollectorStatus]) -> tuple[Family, ...]:
    """The metric families about the state of the collectors."""
    statuses = list(statuses)
    longest = max((one.seconds for one in statuses if one.seconds is not None), default=None)
    return families_of([*(row for one in statuses for row in _rows(one)), (CYCLE, longest)])


def _rows(status: CollectorStatus) -> Iterator[tuple[Any, ...]]:
    name = status.name
    yield SUCCESS, status.success, name
    yield DURATION, status.seconds, name
    yield LAST_SUCCESS, status.last_success, name
    yield TIMEOUTS, status.timeouts, name
    yield RESTARTS, status.restarts, name
    yield UNKILLABLE, status.unkillable, name
    for state in STATES:
        yield STATE, status.state == state, name, state

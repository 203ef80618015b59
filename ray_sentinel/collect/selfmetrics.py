"""Metrics about the collectors themselves: a monitor that sees nothing must not look healthy.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ray_sentinel.model.metrics import CollectorStatus, Family, Metric, Sample

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


def families(statuses: Iterable[CollectorStatus]) -> Iterator[Family]:
    """The metric families about the state of the collectors."""
    statuses = list(statuses)
    found: dict[Metric, list[Sample]] = {}
    for status in statuses:
        for metric, sample in _samples(status):
            found.setdefault(metric, []).append(sample)
    durations = [status.seconds for status in statuses if status.seconds is not None]
    if durations:
        found[CYCLE] = [CYCLE(max(durations))]
    for metric, samples in found.items():
        yield Family(metric, tuple(samples))


def _samples(status: CollectorStatus) -> Iterator[tuple[Metric, Sample]]:
    name = status.name
    if status.success is not None:
        yield SUCCESS, SUCCESS(float(status.success), name)
    if status.seconds is not None:
        yield DURATION, DURATION(status.seconds, name)
    if status.last_success is not None:
        yield LAST_SUCCESS, LAST_SUCCESS(status.last_success, name)
    yield TIMEOUTS, TIMEOUTS(float(status.timeouts), name)
    yield RESTARTS, RESTARTS(float(status.restarts), name)
    yield UNKILLABLE, UNKILLABLE(float(status.unkillable), name)
    for state in STATES:
        yield STATE, STATE(float(status.state == state), name, state)

"""What an alert rule is, and the few forms that its expressions take.

A counter is only ever looked at by its growth: its value belongs to the machine's life, not to the
job's. Format: https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["critical", "warning", "info"]
WATCHED = "ray_sentinel_build_info"
"""Served by every agent: a host that has it is watched."""


class AlertingRule(msgspec.Struct, frozen=True):
    """One alerting rule. ``summary`` and ``action`` may use ``{{ $labels.NAME }}``."""

    name: str
    """In CamelCase, as the field writes alerts."""
    expr: str
    severity: Severity
    """critical: the job stops or computes nonsense. warning: look at it today. info: to know."""
    summary: str
    """What is the case, in one line."""
    action: str
    """What to do about it."""
    wait: str = "0s"
    """How long the expression must hold (``for``)."""


def critical(name: str, expr: str, summary: str, action: str, wait: str = "0s") -> AlertingRule:
    """A rule of what stops the job, or lets it compute nonsense."""
    return AlertingRule(name, expr, "critical", summary, action, wait)


def warning(name: str, expr: str, summary: str, action: str, wait: str = "0s") -> AlertingRule:
    """A rule of what should be looked at today."""
    return AlertingRule(name, expr, "warning", summary, action, wait)


def info(name: str, expr: str, summary: str, action: str, wait: str = "0s") -> AlertingRule:
    """A rule of what is good to know."""
    return AlertingRule(name, expr, "info", summary, action, wait)


class AlertGroup(msgspec.Struct, frozen=True):
    """Rules about one subject."""

    name: str
    alerts: tuple[AlertingRule, ...]


def grew(series: str, window: str = "10m") -> str:
    """A counter whose series is there from the beginning has grown within ``window``."""
    return f"increase({series}[{window}]) > 0"


def came(series: str, window: str) -> str:
    """A counter whose series comes with its first error has grown, or has come, within ``window``.

    One that is there when Prometheus begins to look counts as come: the fault is the machine's.
    """
    new = f"({series} unless last_over_time({series}[1d] offset {window}))"
    return f"(increase({series}[{window}]) > 0) or {new}"


def came_while_watched(series: str, window: str) -> str:
    """As ``came``, without what was there before the host was watched: it concerned another job."""
    before = f"last_over_time({series}[1h] offset 2m)"
    new = f"(({series} unless {before}) and on (host) ({WATCHED} offset 2m))"
    return f"(increase({series}[{window}]) > 0) or (max_over_time({new}[{window}:30s]) > 0)"

"""All alert rules, and the file that Prometheus reads them from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ray_sentinel.store.alerts.gpu import GPU
from ray_sentinel.store.alerts.host import HOST
from ray_sentinel.store.alerts.model import AlertGroup, AlertingRule
from ray_sentinel.store.alerts.network import NETWORK
from ray_sentinel.store.alerts.sentinel import SENTINEL
from ray_sentinel.store.alerts.training import TRAINING
from ray_sentinel.store.scrape_config import operator_resource
from ray_sentinel.store.yaml_text import yaml_text

GROUPS: tuple[AlertGroup, ...] = (SENTINEL, TRAINING, GPU, NETWORK, HOST)
RULES_FILE = "ray_sentinel.rules.yml"
_PREFIX = "ray_sentinel_"


def alerts() -> tuple[AlertingRule, ...]:
    """Every rule."""
    return tuple(alert for group in GROUPS for alert in group.alerts)


def rules_file(groups: Iterable[AlertGroup] = GROUPS) -> str:
    """The rules as YAML."""
    return yaml_text(_rules(groups))


def prometheus_rule(namespace: str = "") -> str:
    """The rules as a PrometheusRule of the Prometheus operator (v1)."""
    return operator_resource("PrometheusRule", namespace, _rules(GROUPS))


def _rules(groups: Iterable[AlertGroup]) -> dict[str, Any]:
    return {
        "groups": [
            {"name": f"{_PREFIX}{group.name}", "rules": [_rule(alert) for alert in group.alerts]}
            for group in groups
        ]
    }


def _rule(alert: AlertingRule) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **({"for": alert.wait} if alert.wait != "0s" else {}),
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.action},
    }

"""All alert rules, and the file that Prometheus reads them from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ray_sentinel.store.alerts.gpu import GPU
from ray_sentinel.store.alerts.host import HOST
from ray_sentinel.store.alerts.model import AlertGroup, AlertingRule
from ray_sentinel.store.alerts.network import NETWORK
from ray_sentinel.store.alerts.sentinel import SENTINEL
from ray_sentinel.store.alerts.training import TRAINING
from ray_sentinel.store.yaml_string import yaml_string

GROUPS: tuple[AlertGroup, ...] = (SENTINEL, TRAINING, GPU, NETWORK, HOST)
RULES_FILE = "ray_sentinel.rules.yml"
_PREFIX = "ray_sentinel_"


def alerts() -> tuple[AlertingRule, ...]:
    """Every rule."""
    return tuple(alert for group in GROUPS for alert in group.alerts)


def rules_file(groups: Iterable[AlertGroup] = GROUPS) -> str:
    """The rules as YAML; texts are written as JSON strings, which YAML takes."""
    return "\n".join(["groups:", *(line for group in groups for line in _group(group))]) + "\n"


def prometheus_rule(namespace: str = "") -> str:
    """The rules as a PrometheusRule of the Prometheus operator (v1)."""
    lines = [
        "apiVersion: monitoring.coreos.com/v1",
        "kind: PrometheusRule",
        "metadata:",
        "  name: ray-sentinel",
        *([f"  namespace: {yaml_string(namespace)}"] if namespace else []),
        "spec:",
        *(f"  {line}" for line in rules_file().splitlines()),
    ]
    return "\n".join(lines) + "\n"


def _group(group: AlertGroup) -> Iterator[str]:
    yield f"  - name: {_PREFIX}{group.name}"
    yield "    rules:"
    for alert in group.alerts:
        yield f"      - alert: {alert.name}"
        yield f"        expr: {yaml_string(alert.expr)}"
        if alert.wait != "0s":
            yield f"        for: {alert.wait}"
        yield f"        labels: {{severity: {alert.severity}}}"
        yield "        annotations:"
        yield f"          summary: {yaml_string(alert.summary)}"
        yield f"          description: {yaml_string(alert.action)}"

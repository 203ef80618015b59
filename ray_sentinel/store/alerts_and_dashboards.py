"""The alert rules and dashboards that the package ships, for Prometheus and for Grafana.

They are files in ``generated/``, made by ``make generated`` from their descriptions in
``docs/dashboards/`` and the table of limits (``model/thresholds.py``).
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.errors import InputError
from ray_sentinel.store.prometheus.scrape_config import operator_resource
from ray_sentinel.whole_file import write_whole

RULES_FILE = "ray_sentinel.rules.yml"
DASHBOARDS = ("overview", "training", "gpus", "network", "host", "sentinel")
"""Names of the dashboards, in the order in which they are listed."""
_FOLDER = resources.files("ray_sentinel.store") / "generated"


class AlertingRule(msgspec.Struct, frozen=True):
    """One alerting rule, as ``ray-sentinel prometheus rules --json`` prints it."""

    name: str
    expr: str
    severity: str
    """"critical", "warning" or "info"."""
    summary: str
    """What is wrong, in one line; may use ``{{ $labels.NAME }}``, and so may ``action``."""
    action: str
    """What to do about it."""
    wait: str
    """How long the expression must hold before the alert fires (Prometheus' ``for``)."""


def rules_file() -> str:
    """The alert rules as YAML, in Prometheus's format."""
    return (_FOLDER / RULES_FILE).read_text(encoding="utf-8")


def prometheus_rule(namespace: str = "") -> str:
    """The alert rules as a PrometheusRule of the Prometheus operator (v1)."""
    return operator_resource("PrometheusRule", namespace, _rules())


def alerts() -> tuple[AlertingRule, ...]:
    """Every alert rule."""
    return tuple(
        AlertingRule(
            name=rule["alert"],
            expr=rule["expr"],
            severity=rule["labels"]["severity"],
            summary=rule["annotations"]["summary"],
            action=rule["annotations"]["description"],
            wait=rule.get("for", "0s"),
        )
        for group in _rules()["groups"]
        for rule in group["rules"]
    )


def _rules() -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.safe_load(rules_file())
    return found


def dashboard_file(name: str) -> str:
    """The name of a dashboard's file."""
    return f"ray-sentinel-{name}.json"


def dashboard(name: str) -> dict[str, Any]:
    """A dashboard as Grafana imports it (version 10 and newer)."""
    found: dict[str, Any] = json.loads((_FOLDER / dashboard_file(name)).read_bytes())
    return found


def export_dashboards(folder: Path) -> list[Path]:
    """Write all dashboards into ``folder``, which is created if missing; our own files in it are
    replaced.

    Raises InputError if it cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in DASHBOARDS:
            path = folder / dashboard_file(name)
            write_whole(path, (_FOLDER / path.name).read_bytes(), mode=0o666)
            written.append(path)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from None
    return written

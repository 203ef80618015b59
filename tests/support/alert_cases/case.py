"""One case of a rule: the series that go in, and what must come out of it at a moment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ray_sentinel.store.alerts_and_dashboards import AlertingRule

INTERVAL = "30s"
"""Between two values of a series."""
WATCHED = 'ray_sentinel_build_info{host="n1"}'


class Case(msgspec.Struct, frozen=True):
    """``values`` of ``series`` are in promtool's notation: ``0x19 1x20`` is 20 zeros, 21 ones."""

    alert: str
    why: str
    series: dict[str, str]
    fires: tuple[dict[str, str], ...]
    """The labels of each alert that must fire; empty where none may."""
    at: str

    def as_test(self, rule: AlertingRule) -> dict[str, Any]:
        """The case as an entry of a file for ``promtool test rules``."""
        expected = [
            {
                "exp_labels": {**labels, "severity": rule.severity},
                "exp_annotations": {
                    "summary": _filled(rule.summary, labels),
                    "description": _filled(rule.action, labels),
                },
            }
            for labels in self.fires
        ]
        return {
            "name": f"{self.alert}: {self.why}",
            "interval": INTERVAL,
            "input_series": [{"series": k, "values": v} for k, v in self.series.items()],
            "alert_rule_test": [
                {"eval_time": self.at, "alertname": self.alert, "exp_alerts": expected}
            ],
        }


def fires(
    alert: str, why: str, series: dict[str, str], *labels: dict[str, str], at: str = "15m"
) -> Case:
    """A case in which the rule fires once for each of ``labels``."""
    assert labels
    return Case(alert, why, series, labels, at)


def quiet(alert: str, why: str, series: dict[str, str], at: str = "15m") -> Case:
    """A case in which the rule does not fire."""
    return Case(alert, why, series, (), at)


def _filled(text: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)

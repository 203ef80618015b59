"""The alert rules as data: complete, named once, about series that exist."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from ray_sentinel.evidence import xids
from ray_sentinel.store.alerts_and_dashboards import (
    DASHBOARDS,
    AlertingRule,
    alerts,
    dashboard,
    rules_file,
)
from tests.support.alert_cases import CASES
from tests.support.series_names import metric_names, named_series

ALERTS = alerts()
DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_rule_has_cases_that_fire_and_that_do_not(alert: AlertingRule) -> None:
    own = [case for case in CASES if case.alert == alert.name]
    assert any(case.fires for case in own)
    assert any(not case.fires for case in own)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_rule_reads_series_that_are_served(alert: AlertingRule) -> None:
    assert named_series(alert.expr)
    assert named_series(alert.expr) <= metric_names() | {"up"}


def test_names_are_used_once_and_no_case_is_an_orphan() -> None:
    assert not [name for name, n in Counter(a.name for a in ALERTS).items() if n > 1]
    assert {case.alert for case in CASES} == {alert.name for alert in ALERTS}
    assert not [why for why, n in Counter((c.alert, c.why) for c in CASES).items() if n > 1]


def test_texts_say_what_is_and_what_to_do() -> None:
    for alert in ALERTS:
        assert re.fullmatch(r"([A-Z][a-z]+)+", alert.name)
        assert alert.summary
        assert alert.action.endswith(".")


def test_the_file_is_yaml_with_all_of_them() -> None:
    groups = yaml.safe_load(rules_file())["groups"]
    subjects = ["sentinel", "training", "gpu", "network", "host"]
    assert [group["name"] for group in groups] == [f"ray_sentinel_{name}" for name in subjects]
    rules = [rule for group in groups for rule in group["rules"]]
    assert [rule["alert"] for rule in rules] == [alert.name for alert in ALERTS]
    assert [rule["expr"] for rule in rules] == [alert.expr for alert in ALERTS]
    assert {rule["labels"]["severity"] for rule in rules} == {"critical", "warning", "info"}


def asked(name: str) -> str:
    """The regular expression of Xids that a rule asks for."""
    (rule,) = (alert for alert in ALERTS if alert.name == name)
    return re.findall(r'xid=~"([^"]+)"', rule.expr)[0]


def test_an_xid_is_in_one_class() -> None:
    classes = xids.RESET + xids.SERVICE + xids.APPLICATION + xids.HANDLED
    assert len(classes) == len(set(classes))
    # Regular expressions of Prometheus are anchored: 4 is not 48.
    assert re.fullmatch(asked("GpuXidCritical"), "79")
    assert not re.fullmatch(asked("GpuXidCritical"), "7")
    assert re.fullmatch(asked("GpuXidApplication"), "13")


def test_the_page_for_users_names_every_rule() -> None:
    page = (DOCS / "dashboards.md").read_text()
    named = set(re.findall(r"`([A-Z]\w+)`", page))
    assert named == {alert.name for alert in ALERTS}
    assert all(
        dashboard(name)["title"].removeprefix("ray_sentinel / ") in page for name in DASHBOARDS
    )


def test_each_series_of_the_sentinel_has_an_alert_or_a_reason_why_not() -> None:
    page = (DOCS / "metrics.md").read_text()
    table = page.partition("| series without an alert | why |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) == len(table.splitlines())
    ours = {name for name in metric_names() if name.startswith("ray_sentinel_")}
    read = set[str]().union(*(named_series(alert.expr) for alert in ALERTS))
    assert sorted(name for name, _ in rows) == sorted(ours - read)
    told = {name for _, why in rows for name in re.findall(r"`([A-Z]\w+)`", why)}
    assert told <= {alert.name for alert in ALERTS}

"""The alert rules under Prometheus's own tool: what fires, and what does not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ray_sentinel.store.alerts_and_dashboards import RULES_FILE, alerts, rules_file
from tests.support.alert_cases import CASES
from tests.support.alert_cases.case import Case
from tests.support.parts import require

pytestmark = pytest.mark.integration

GROUPS = yaml.safe_load(rules_file())["groups"]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / RULES_FILE
    path.write_text(rules_file())
    return path


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([require("promtool"), *arguments], capture_output=True, text=True)


def test_promtool_takes_the_rules(rules: Path) -> None:
    checked = promtool("check", "rules", "--lint=all", str(rules))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(alerts())} rules found" in checked.stdout


def outcome(rules: Path, cases: tuple[Case, ...]) -> subprocess.CompletedProcess[str]:
    known = {alert.name: alert for alert in alerts()}
    tests = {
        "rule_files": [str(rules)],
        "evaluation_interval": "15s",
        "tests": [case.as_test(known[case.alert]) for case in cases],
    }
    path = rules.with_name("tests.json")
    path.write_text(json.dumps(tests))
    return promtool("test", "rules", str(path))


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group["name"])
def test_every_rule_fires_when_it_must_and_only_then(group: dict[str, Any], tmp_path: Path) -> None:
    rules = tmp_path / RULES_FILE
    rules.write_text(yaml.safe_dump({"groups": [group]}))
    names = {rule["alert"] for rule in group["rules"]}
    tested = outcome(rules, tuple(case for case in CASES if case.alert in names))
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("fires", [True, False])
def test_a_wrong_expectation_is_found(fires: bool, rules: Path) -> None:
    """The tool looks at the cases: one turned round fails."""
    case = next(case for case in CASES if bool(case.fires) is fires)
    turned = () if case.fires else ({"host": "n1"},)
    wrong = Case(case.alert, case.why, case.series, turned, case.at)
    assert outcome(rules, (wrong,)).returncode != 0

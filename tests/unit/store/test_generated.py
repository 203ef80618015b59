"""The shipped alert rules and dashboards are those that their descriptions and the table make."""

from __future__ import annotations

import re

import msgspec
import pytest
import yaml

from docs.dashboards import generate
from ray_sentinel.model.thresholds import TABLE
from ray_sentinel.store.alerts_and_dashboards import DASHBOARDS, RULES_FILE, dashboard_file


def test_making_them_again_gives_the_same_bytes() -> None:
    made = generate.generated()
    assert {path.name for path in generate.SHIPPED.iterdir()} == set(made)
    stale = [name for name, new in made.items() if (generate.SHIPPED / name).read_bytes() != new]
    assert not stale, "run `make generated`"


def test_all_that_is_made_is_offered() -> None:
    assert set(generate.generated()) == {RULES_FILE, *map(dashboard_file, DASHBOARDS)}


def test_another_limit_makes_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    hotter = msgspec.structs.replace(TABLE["gpu_hot"], limit=77.5, page_seconds=5400.0)
    monkeypatch.setitem(TABLE, "gpu_hot", hotter)
    made = generate.generated()
    groups = yaml.safe_load(made[RULES_FILE])["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    (hot,) = [r for r in rules if r["expr"].endswith("hw_gpu_temperature_celsius > 77.5")]
    assert hot["for"] == "90m"
    assert "is hotter than 77.5 °C" in str(hot["annotations"])
    assert b'"value": 77.5' in made[dashboard_file("gpus")]


@pytest.mark.parametrize("name", [f"{name}.yml" for name in ("alerts", *DASHBOARDS)])
def test_a_description_states_no_limit_of_the_table_itself(name: str) -> None:
    """What has a row is filled in: a number beside such a family is nobody's."""
    text = (generate.HERE / name).read_text()
    families = {family for row in TABLE.values() for family in row.families}
    for expr in re.findall(r"expr: (.*(?:\n {10,}\S.*)*)", text):
        if any(re.search(rf"\b{family}\b", expr) for family in families) and "predict" not in expr:
            stated = set(re.findall(r"[<>]=? ([0-9.]+)", expr))
            # A panel may draw only what holds at all.
            assert not stated - (set() if name == "alerts.yml" else {"0"}), expr

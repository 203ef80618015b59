"""The dashboards as data and as Grafana's JSON: complete, without overlaps, about real series."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.errors import InputError
from ray_sentinel.store.alerts_and_dashboards import (
    DASHBOARDS,
    dashboard,
    dashboard_file,
    export_dashboards,
)
from tests.support.parts import require_module
from tests.support.series_names import catalogue, metric_names, named_series

OF_PROMETHEUS = {"up"}
COLUMNS = 24
"""Of Grafana's grid."""
SCHEMA_VERSION = 41
GRAFANAS_OWN = {"__rate_interval", "datasource"}
UNITS = {
    "short", "none", "s", "percent", "percentunit", "bytes", "Bps", "pps", "cps", "watt", "celsius",
    "hertz",
}  # fmt: skip

each = pytest.mark.parametrize("name", DASHBOARDS)


def drawn(name: str) -> list[dict[str, Any]]:
    return list(dashboard(name)["panels"])


def panels(name: str) -> list[dict[str, Any]]:
    """Those that are no headings."""
    return [panel for panel in drawn(name) if panel["type"] != "row"]


@each
def test_panels_do_not_overlap_and_stay_on_the_grid(name: str) -> None:
    cells: set[tuple[int, int]] = set()
    for panel in drawn(name):
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= COLUMNS
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells, f"{panel['title']} lies over another"
        cells |= own


@each
def test_lines_are_full(name: str) -> None:
    """But for the last of a row, panels that stand side by side fill the width."""
    tops: dict[int, int] = {}
    rows = set()
    for panel in drawn(name):
        place = panel["gridPos"]
        tops[place["y"]] = tops.get(place["y"], 0) + place["w"]
        if panel["type"] == "row":
            rows.add(place["y"])
    last_of_a_row = {max(y for y in tops if y < row) for row in rows if row} | {max(tops)}
    assert {y: width for y, width in tops.items() if y not in last_of_a_row} == {
        y: COLUMNS for y in tops if y not in last_of_a_row
    }


@each
def test_ids_and_letters_are_used_once(name: str) -> None:
    ids = [panel["id"] for panel in drawn(name)]
    assert len(ids) == len(set(ids))
    for panel in panels(name):
        letters = [target["refId"] for target in panel["targets"]]
        assert letters, panel["title"]
        assert len(letters) == len(set(letters))


@each
def test_a_file_fits_what_grafana_imports(name: str) -> None:
    model = dashboard(name)
    assert model["schemaVersion"] == SCHEMA_VERSION
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", model["uid"])
    assert "id" not in model, "a number of another Grafana's"
    first, *others = model["templating"]["list"]
    assert (first["type"], first["name"]) == ("datasource", "datasource")
    asking = [*others, *(p for p in model["panels"] if p["type"] != "row")]
    asking += [target for panel in model["panels"] for target in panel.get("targets", ())]
    assert {item["datasource"]["uid"] for item in asking} == {"${datasource}"}
    for panel in model["panels"]:
        assert panel["type"] in {"row", "timeseries", "stat", "table", "state-timeline"}
        if panel["type"] != "row":
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            values = [step["value"] for step in steps]
            assert values[0] is None
            assert values[1:] == sorted(values[1:])
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS


@each
def test_variables_that_are_used_are_there(name: str) -> None:
    model = dashboard(name)
    text = json.dumps(model)
    used = set(re.findall(r"\$\{?(\w+)\}?", re.sub(r"\$__all", "", text)))
    known = {variable["name"] for variable in model["templating"]["list"]} - GRAFANAS_OWN
    assert used <= known | GRAFANAS_OWN
    assert known <= used, "a choice that changes nothing"


@each
def test_series_and_labels_that_are_asked_for_are_served(name: str) -> None:
    scraped = {"scrape_duration_seconds", "scrape_samples_scraped"}
    for panel in panels(name):
        for query in panel["targets"]:
            names = named_series(query["expr"])
            assert names <= metric_names() | OF_PROMETHEUS
            assert (
                names
                or "__name__" in query["expr"]
                or "ALERTS" in query["expr"]
                or any(one in query["expr"] for one in scraped)
            )
            labels = {label for one in names & metric_names() for label in catalogue()[one].labels}
            shown = set(re.findall(r"\{\{(\w+)\}\}", query["legendFormat"]))
            general = {"host", "instance", "job", "run", "attempt", "__name__"}
            assert shown <= labels | general, panel["title"]


@each
def test_incidents_are_marked_and_the_checkpoints_of_the_jobs_that_are_chosen(name: str) -> None:
    model = dashboard(name)
    marks = {mark["name"]: mark for mark in model["annotations"]["list"]}
    of_jobs = any(choice["name"] == "job" for choice in model["templating"]["list"])
    assert set(marks) == ({"Incidents", "Checkpoints"} if of_jobs else {"Incidents"})
    for mark in marks.values():
        (series,) = named_series(mark["expr"])
        assert set(re.findall(r"\w+", mark["tagKeys"])) <= {*catalogue()[series].labels, "job"}
        assert ('job=~"$job"' in mark["expr"]) is of_jobs
        assert mark["datasource"]["uid"] == "${datasource}"
        assert mark["enable"]


def test_all_that_is_read_of_the_hardware_is_shown() -> None:
    asked = {
        name
        for dashboard_name in DASHBOARDS
        for panel in panels(dashboard_name)
        for query in panel["targets"]
        for name in named_series(query["expr"])
    }
    assert {name for name in metric_names() - asked if name.startswith("hw_")} == set()


def test_names_are_used_once() -> None:
    assert len({dashboard(name)["uid"] for name in DASHBOARDS}) == len(DASHBOARDS)
    for name in DASHBOARDS:
        titles = [panel["title"] for panel in panels(name)]
        assert len(titles) == len(set(titles)), name


def test_the_same_dashboard_gives_the_same_bytes(tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in export_dashboards(tmp_path / "a")}
    assert {path.name: path.read_bytes() for path in export_dashboards(tmp_path / "a")} == first
    assert sorted(first) == sorted(dashboard_file(name) for name in DASHBOARDS)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(first)
    assert json.loads(first["ray-sentinel-gpus.json"]) == dashboard("gpus")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/sub cannot be written"):
        export_dashboards(tmp_path / "file" / "sub")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "export", str(tmp_path / "out"), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert len(written) == len(DASHBOARDS)
    assert all(Path(path).is_file() for path in written)
    assert main(["dashboards", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed] == list(DASHBOARDS)
    assert main(["dashboards", "export"]) == 2


@each
def test_a_panel_that_needs_hardware_says_so(name: str) -> None:
    for panel in panels(name):
        asked = {one for query in panel["targets"] for one in named_series(query["expr"])}
        needs = any(one.startswith(("hw_gpu_", "hw_rdma_", "hw_cgroup_mem")) for one in asked)
        assert ("Shown where a node has " in panel["description"]) == needs, panel["title"]


@each
def test_grafanas_own_library_knows_every_field(name: str) -> None:
    """What it does not know it drops: read and written by it, a dashboard is what it was."""
    sdk = require_module("grafana_foundation_sdk.models.dashboard", "grafana-foundation-sdk")
    cog = require_module("grafana_foundation_sdk.cog.plugins", "grafana-foundation-sdk")
    encoder = require_module("grafana_foundation_sdk.cog.encoder", "grafana-foundation-sdk")
    cog.register_default_plugins()
    ours = dashboard(name)
    theirs = json.loads(json.dumps(sdk.Dashboard.from_json(ours), cls=encoder.JSONEncoder))
    for variable in ours["templating"]["list"]:
        variable.pop("definition", None)  # of Grafana's editor; not in its schema
    for mark in ours["annotations"]["list"]:
        for key in ("step", "titleFormat", "textFormat", "tagKeys"):
            assert mark.pop(key)  # of its source for Prometheus, which has no schema for marks
    assert list(lost(ours, theirs)) == []


def lost(ours: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """Where a value of ours is not, or is another."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from (
                lost(value, theirs[key], f"{at}.{key}") if key in theirs else (f"{at}.{key}",)
            )
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(*pair, f"{at}[{number}]")
    elif ours != theirs:
        yield at

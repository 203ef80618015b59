"""Makes the alert rules and dashboards that the package ships: ``make generated``.

Here lie their descriptions, ``alerts.yml`` and one file for each dashboard. ``<ROW.FIELD>`` in them
is filled in from the table of limits (``ray_sentinel/model/thresholds.py``); see ``_fields``. The
same descriptions give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ray_sentinel import regex as re
from ray_sentinel.evidence import xids
from ray_sentinel.model import thresholds
from ray_sentinel.model.thresholds import TABLE, Threshold
from ray_sentinel.store.prometheus.yaml_text import yaml_text

HERE = Path(__file__).resolve().parent
SHIPPED = HERE.parents[1] / "ray_sentinel" / "store" / "generated"
DASHBOARDS = ("overview", "training", "gpus", "network", "host", "sentinel")
RULES = "ray_sentinel.rules.yml"
COLUMNS = 24
"""Columns of Grafana's grid."""
SCHEMA_VERSION = 41
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TYPES = {"graph": "timeseries", "stat": "stat", "table": "table", "states": "state-timeline"}
TAG = "ray_sentinel"
_GREEN = {"color": "green", "value": None}
_PLACE = re.compile(r"<([a-z_]+)\.([a-z_]+)>")


def generated() -> dict[str, bytes]:
    """File name → content, of all that is shipped."""
    files = {RULES: yaml_text(_alerts()).encode()}
    for name in DASHBOARDS:
        found = msgspec.convert(_described(f"{name}.yml"), Dashboard)
        encoded = msgspec.json.encode(_grafana(found))
        files[f"ray-sentinel-{name}.json"] = msgspec.json.format(encoded, indent=2) + b"\n"
    return files


def _described(name: str) -> Any:
    text = (HERE / name).read_text(encoding="utf-8")
    return yaml.safe_load(_PLACE.sub(lambda found: _value(found[1], found[2]), text))


# The limits


def _value(row: str, field: str) -> str:
    """The text for ``<ROW.FIELD>``. Raises KeyError for a row or a field that does not exist."""
    return (_LISTS[row] if row in _LISTS else _fields(TABLE[row]))[field]


def _fields(row: Threshold) -> dict[str, str]:
    return {
        "limit": f"{row.limit:.12g}",
        "percent": f"{100 * row.limit:.12g}",
        "rest": f"{1 - row.limit:.12g}",
        "gigabytes": f"{row.limit / 1e9:.12g}",
        "crossed": f"{row.comparison} {row.limit:.12g}",
        # Of whole numbers, which increase() extrapolates: 1 may come out as 0.98.
        "grew": f"> {row.limit - (row.comparison == '>='):.12g}",
        "seconds": f"{row.seconds:.0f}",
        "window": _duration(row.seconds),
        "for": _duration(row.page_seconds),
    }


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _any_of(values: Any) -> str:
    """A regular expression of a label: Prometheus anchors them."""
    return "|".join(map(str, values))


_LISTS = {
    "xids": {
        "critical": _any_of(sorted(xids.RESET + xids.SERVICE)),
        "info": _any_of(sorted(xids.APPLICATION + xids.HANDLED)),
    },
    "throttle": {"reasons": _any_of(thresholds.THROTTLE_REASONS)},
    "nvlink": {"recoveries": _any_of(thresholds.NVLINK_KINDS)},
}


# Alerts


def _alerts() -> dict[str, Any]:
    groups = _described("alerts.yml")["groups"]
    return {
        "groups": [
            {"name": group["name"], "rules": [_alert(rule) for rule in group["rules"]]}
            for group in groups
        ]
    }


def _alert(rule: dict[str, str]) -> dict[str, Any]:
    return {
        **{key: rule[key] for key in ("alert", "expr", "for") if key in rule},
        "labels": {"severity": rule["severity"]},
        "annotations": {key: rule[key] for key in ("summary", "description")},
    }


# Dashboards: what they are made of, and the JSON that Grafana imports (version 10 and newer),
# https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One PromQL expression, with Grafana's variables in it, and how its series are named."""

    expr: str
    legend: str = ""


class Panel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One panel. Its title stands behind its kind; ``unit`` is Grafana's name of one."""

    graph: str = ""
    """Lines over time."""
    stat: str = ""
    """One number, coloured by ``steps``."""
    table: str = ""
    """The labels of series as they are now."""
    states: str = ""
    """A band of colour for each series: 0 and 1, or what ``steps`` tells apart."""
    expr: str = ""
    """The one query, where its series need no names."""
    queries: tuple[Query, ...] = ()
    unit: str = "short"
    about: str = ""
    """What it tells, and when to worry; shown at its corner."""
    width: int = 0
    height: int = 0
    steps: tuple[tuple[float, str], ...] = ()
    """From this value on, this colour. Below the first everything is green."""
    least: float | None = 0.0
    most: float | None = None
    stacked: bool = False
    hardware: str = ""
    """What a node must have for it to show anything; empty where every node has it."""

    @property
    def kind(self) -> str:
        """A key of ``TYPES``."""
        return next(kind for kind in TYPES if getattr(self, kind))

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, in cells of the grid."""
        width, height = (4, 4) if self.stat else (8, 7)
        return self.width or width, self.height or height


class PanelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


class Variable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A choice at the head of a dashboard, from the values of a label."""

    name: str
    title: str
    query: str
    every: str = ".*"
    """The regular expression that "All" stands for."""


class Dashboard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One dashboard; ``name`` is its file's and its address's."""

    name: str
    title: str
    about: str
    rows: tuple[PanelRow, ...]
    variables: tuple[Variable, ...] = ()


def _grafana(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"ray-sentinel-{dashboard.name}",
        "title": f"ray_sentinel / {dashboard.title}",
        "description": dashboard.about,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "links": [_links()],
        "templating": {"list": [_source_variable(), *map(_variable, dashboard.variables)]},
        "annotations": {"list": list(_annotations(dashboard))},
        "panels": list(_panels(dashboard)),
    }


def _links() -> dict[str, Any]:
    """The other dashboards of ours, with the chosen time and values kept."""
    return {
        "type": "dashboards",
        "title": "ray_sentinel",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }


def _annotations(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    """Marks on every graph: the incidents and, where jobs are chosen, their checkpoints. Grafana
    joins values that follow each other to one band."""
    of_jobs = any(variable.name == "job" for variable in dashboard.variables)
    chosen = 'job=~"$job"' if of_jobs else ""
    yield _annotation("Incidents", "red", "kind", f"ray_sentinel_incident_active{{{chosen}}}")
    if of_jobs:
        phase = f'train_phase{{{chosen},phase="checkpoint"}}'
        yield _annotation("Checkpoints", "blue", "phase", phase)


def _annotation(name: str, colour: str, label: str, series: str) -> dict[str, Any]:
    """Marks while a series is 1, with its ``label`` as title and its job below."""
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": f"max by (job, {label}) ({series}) == 1",
        "step": "10s",
        "titleFormat": f"{{{{{label}}}}}",
        "textFormat": "{{job}}",
        "tagKeys": f"job,{label}",
    }


def _source_variable() -> dict[str, Any]:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "refresh": 1,
    }


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "type": "query",
        "name": variable.name,
        "label": variable.title,
        "datasource": SOURCE,
        "definition": variable.query,
        "query": {"query": variable.query, "refId": "variable"},
        "includeAll": True,
        "allValue": variable.every,
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,
        "sort": 1,
        "hide": 0,
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    number, y = 1, 0
    for row in dashboard.rows:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
            "panels": [],
        }
        number, y = number + 1, y + 1
        for panel, (left, top) in zip(row.panels, _places(row), strict=True):
            yield _panel(panel, number, left, y + top)
            number += 1
        y += _depth(row)


def _places(row: PanelRow) -> list[tuple[int, int]]:
    """Upper left corners of a row's panels: side by side, in a new line if one does not fit."""
    found, left, top, line = [], 0, 0, 0
    for panel in row.panels:
        width, height = panel.size
        if left + width > COLUMNS:
            left, top, line = 0, top + line, 0
        found.append((left, top))
        left, line = left + width, max(line, height)
    return found


def _depth(row: PanelRow) -> int:
    return max(
        (top + panel.size[1] for panel, (_, top) in zip(row.panels, _places(row), strict=True)),
        default=0,
    )


def _panel(panel: Panel, number: int, left: int, top: int) -> dict[str, Any]:
    about, (width, height) = panel.about, panel.size
    if panel.hardware:
        about = f"{about} Shown where a node has {panel.hardware}.".strip()
    return {
        "id": number,
        "type": TYPES[panel.kind],
        "title": getattr(panel, panel.kind),
        "description": about,
        "datasource": SOURCE,
        "gridPos": {"h": height, "w": width, "x": left, "y": top},
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": list(_targets(panel)),
        **_transformations(panel),
    }


def _targets(panel: Panel) -> Iterator[dict[str, Any]]:
    for letter, query in zip(
        "ABCDEFGHIJKLMNOP", panel.queries or (Query(panel.expr),), strict=False
    ):
        yield {
            "refId": letter,
            "datasource": SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "range": panel.kind not in ("table", "stat"),
            "instant": panel.kind in ("table", "stat"),
            "format": "table" if panel.kind == "table" else "time_series",
        }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "color": {"mode": "thresholds" if _coloured(panel) else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": [_GREEN, *_steps(panel)]},
        "custom": _custom(panel),
    }
    if panel.kind == "graph":
        limits = {"min": panel.least, "max": panel.most}
        defaults.update({key: value for key, value in limits.items() if value is not None})
    return defaults


def _coloured(panel: Panel) -> bool:
    return panel.kind in ("stat", "states") and bool(panel.steps)


def _steps(panel: Panel) -> Iterator[dict[str, Any]]:
    for value, color in panel.steps:
        yield {"color": color, "value": value}


def _custom(panel: Panel) -> dict[str, Any]:
    if panel.kind == "states":
        return {"fillOpacity": 80, "lineWidth": 0}
    if panel.kind != "graph":
        return {}
    return {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 20 if panel.stacked else 5,
        "showPoints": "auto",
        # A gap is a gap: what was not measured is not drawn.
        "spanNulls": False,
        "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "line" if panel.steps else "off"},
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "background" if panel.steps else "none",
            "graphMode": "none",
            "textMode": "auto",
        }
    if panel.kind == "table":
        return {"showHeader": True, "cellHeight": "sm"}
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
    if panel.kind == "states":
        return {"showValue": "never", "mergeValues": True, "legend": legend}
    legend["displayMode"] = "table"
    return {
        "legend": {**legend, "calcs": ["lastNotNull", "max"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _transformations(panel: Panel) -> dict[str, Any]:
    if panel.kind != "table":
        return {}
    hidden = dict.fromkeys(("Time", "__name__", "instance"), True)
    return {"transformations": [{"id": "organize", "options": {"excludeByName": hidden}}]}


def main() -> None:
    """Write all files."""
    SHIPPED.mkdir(exist_ok=True)
    for name, content in generated().items():
        (SHIPPED / name).write_bytes(content)


if __name__ == "__main__":
    main()

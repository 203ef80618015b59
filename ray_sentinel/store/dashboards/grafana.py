"""A dashboard as the JSON that Grafana imports (version 10 and newer).

https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ray_sentinel.store.dashboards.model import COLUMNS, Dashboard, Panel, PanelRow, Steps, Variable

SCHEMA_VERSION = 41
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TYPES = {"graph": "timeseries", "stat": "stat", "table": "table", "states": "state-timeline"}
TAG = "ray_sentinel"


def to_json(dashboard: Dashboard) -> bytes:
    """The file's content; the same dashboard gives the same bytes."""
    encoded = msgspec.json.encode(to_grafana(dashboard))
    return msgspec.json.format(encoded, indent=2) + b"\n"


def to_grafana(dashboard: Dashboard) -> dict[str, Any]:
    """Grafana's model of a dashboard."""
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
        "annotations": {"list": []},
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
        for panel, (left, top) in zip(row.panels, places(row), strict=True):
            yield _panel(panel, number, left, y + top)
            number += 1
        y += _depth(row)


def places(row: PanelRow) -> list[tuple[int, int]]:
    """Left upper corners of a row's panels: side by side, in a new line where one does not fit."""
    found, left, top, line = [], 0, 0, 0
    for panel in row.panels:
        if left + panel.width > COLUMNS:
            left, top, line = 0, top + line, 0
        found.append((left, top))
        left, line = left + panel.width, max(line, panel.height)
    return found


def _depth(row: PanelRow) -> int:
    return max(
        (top + panel.height for panel, (_, top) in zip(row.panels, places(row), strict=True)),
        default=0,
    )


def _panel(panel: Panel, number: int, left: int, top: int) -> dict[str, Any]:
    about = panel.about
    if panel.hardware:
        about = f"{about} Shown where a node has {panel.hardware}.".strip()
    return {
        "id": number,
        "type": TYPES[panel.kind],
        "title": panel.title,
        "description": about,
        "datasource": SOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": left, "y": top},
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": list(_targets(panel)),
        **_transformations(panel),
    }


def _targets(panel: Panel) -> Iterator[dict[str, Any]]:
    for letter, query in zip("ABCDEFGHIJKLMNOP", panel.queries, strict=False):
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
        "thresholds": {"mode": "absolute", "steps": _steps(panel.steps)},
        "custom": _custom(panel),
    }
    if panel.kind == "graph":
        limits = {"min": panel.least, "max": panel.most}
        defaults.update({key: value for key, value in limits.items() if value is not None})
    return defaults


def _coloured(panel: Panel) -> bool:
    return panel.kind in ("stat", "states") and bool(panel.steps)


def _steps(steps: Steps) -> list[dict[str, Any]]:
    first: dict[str, Any] = {"color": "green", "value": None}
    return [first, *({"color": color, "value": value} for value, color in steps)]


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

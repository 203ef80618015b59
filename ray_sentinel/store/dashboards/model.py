"""What a dashboard is made of, without Grafana's own many words for it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Kind = Literal["graph", "stat", "table", "states"]
Steps = tuple[tuple[float, str], ...]
"""Thresholds: from this value on, this colour. Below the first everything is green."""

BAD_FROM_ONE: Steps = ((1.0, "red"),)
COLUMNS = 24
"""Of Grafana's grid."""


class Query(msgspec.Struct, frozen=True):
    """One PromQL expression, with Grafana's variables in it, and how its series are named."""

    expr: str
    legend: str = ""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One panel. ``unit`` is Grafana's name of one."""

    title: str
    queries: tuple[Query, ...]
    kind: Kind = "graph"
    unit: str = "short"
    about: str = ""
    """What it tells, and when to worry; shown at its corner."""
    width: int = 8
    height: int = 7
    steps: Steps = ()
    least: float | None = 0.0
    most: float | None = None
    stacked: bool = False
    hardware: str = ""
    """What a node must have for it to show anything; empty where every node has it."""


class PanelRow(msgspec.Struct, frozen=True):
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """A choice at the head of a dashboard, from the values of a label."""

    name: str
    title: str
    query: str
    every: str = ".*"
    """The regular expression that "All" stands for."""


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    """One dashboard; ``name`` is its file's and its address's."""

    name: str
    title: str
    about: str
    rows: tuple[PanelRow, ...]
    variables: tuple[Variable, ...] = ()

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, in their order."""
        return tuple(panel for row in self.rows for panel in row.panels)


HOST = Variable(name="host", title="Host", query="label_values(ray_sentinel_build_info, host)")
JOB = Variable(name="job", title="Job", query="label_values(train_rank_alive, job)")

_Pairs = tuple[str, str]


def graph(title: str, unit: str, *queries: _Pairs, **more: Any) -> Panel:
    """Lines over time; ``queries`` are (expression, legend)."""
    return Panel(title=title, unit=unit, queries=_queries(queries), **more)


def stat(title: str, unit: str, expr: str, *, width: int = 4, **more: Any) -> Panel:
    """One number, coloured by ``steps``."""
    return Panel(
        title=title,
        unit=unit,
        queries=(Query(expr),),
        kind="stat",
        width=width,
        height=4,
        **more,
    )


def table(title: str, expr: str, **more: Any) -> Panel:
    """The labels of series as they are now."""
    return Panel(title=title, queries=(Query(expr),), kind="table", **more)


def states(title: str, *queries: _Pairs, **more: Any) -> Panel:
    """A band of colour for each series: 0 and 1, or what ``steps`` tells apart."""
    return Panel(title=title, queries=_queries(queries), kind="states", **more)


def _queries(pairs: tuple[_Pairs, ...]) -> tuple[Query, ...]:
    return tuple(Query(expr, legend) for expr, legend in pairs)

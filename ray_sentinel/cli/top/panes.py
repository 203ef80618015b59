"""The panes under the head: which rows each has, and how one row is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rich.text import Text

from ray_sentinel.cli.open_incidents import is_open
from ray_sentinel.cli.status_view import COLOURS, failing_collectors
from ray_sentinel.cli.top.gpus import GpuSight, NodeGpus
from ray_sentinel.cli.top.looks import ACCUSED, age, bar, plain
from ray_sentinel.cli.top.map import map_cells
from ray_sentinel.cli.top.process_lines import ProcessLine
from ray_sentinel.cli.top.pulse import PulseLine
from ray_sentinel.cli.top.pulse import cells as pulse_cells
from ray_sentinel.cli.top.rows import RowsPane
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import NodeStatus, Unwatched
from ray_sentinel.report.words import brief_progress, second

HOT, WARM = 85.0, 75.0
"""GPU temperatures in °C from which on they are shown in red and in yellow."""


class GpuLine(NamedTuple):
    """One GPU of a node, or the node where nothing is known of its GPUs."""

    node: NodeStatus
    told: NodeGpus | None
    gpu: GpuSight | None
    now: float


def _process(line: ProcessLine) -> list[Text]:
    style = ACCUSED if line.accused else COLOURS.get(line.state, "")
    behind = Text(f"-{line.behind}", style="bold yellow") if line.behind else Text()
    return [
        plain(("! " if line.accused else "") + line.who, "bold" if line.in_trouble else "", 60),
        plain(line.state, style),
        Text("" if line.step is None else str(line.step), justify="right"),
        behind,
        Text(age(line.seconds)),
        plain(line.does, limit=60),
        plain(line.host, limit=60),
        plain(f"{line.pid} {line.role} {line.job}", "dim"),
    ]


def _node(node: NodeStatus | Unwatched) -> list[Text]:
    if isinstance(node, Unwatched):
        why = plain(f"not watched: {node.reason}", "yellow")
        return [plain(node.host, "yellow", 60), Text(), Text(), why]
    bad = [
        f"{one.name}: {one.state}" + (f" ({one.message})" if one.message else "")
        for one in failing_collectors(node)
    ]
    well = [one.name for one in node.collectors if one.state == "running" and one.success]
    return [
        plain(node.host + (" (head)" if node.is_head else ""), limit=60),
        plain(node.address, limit=60),
        Text(age(node.snapshot_age_seconds)),
        Text.assemble(
            plain(", ".join(bad), "yellow"), "  " if bad else "", plain(" ".join(well), "dim")
        ),
    ]


def _gpu(line: GpuLine) -> list[Text]:
    node, told, gpu, now = line
    host = plain(node.host, limit=60)
    if gpu is None:
        why = "asking …" if told is None else told.error or "no GPU"
        return [host, Text("-"), Text(), Text(), Text(), Text(), plain(why, "dim")]
    old = now - told.at if told is not None else 0.0
    stale = f"{age(old)} old " if old > 10 else ""
    used, total, share = gpu.used, gpu.total, gpu.utilization
    memory = "" if used is None else f"{used / 2**30:.1f}"
    memory += "" if total is None else f"/{total / 2**30:.0f} GiB"
    heat = gpu.celsius
    colour = "" if heat is None else "bold red" if heat >= HOT else "yellow" if heat >= WARM else ""
    watts = "" if gpu.watts is None else f"{gpu.watts:.0f}"
    watts += "" if gpu.watts_limit is None else f"/{gpu.watts_limit:.0f} W"
    return [
        host,
        plain(gpu.gpu, limit=12),
        Text("" if share is None else f"{bar(share)} {share:4.0%}"),
        Text(memory),
        Text(watts),
        Text("" if heat is None else f"{heat:.0f} °C", style=colour),
        Text.assemble((stale, "yellow"), plain(gpu.name, "dim")),
    ]


def _incident(incident: Incident) -> list[Text]:
    style = "bold red" if is_open(incident) else "dim"
    return [
        plain(incident.id, style, 30),
        Text(second(incident.suspected_at)),
        plain(brief_progress(incident.state), style),
        plain(incident.kind),
        plain(f"{incident.job}: {incident.summary}"),
    ]


def _process_key(line: ProcessLine) -> object:
    return (line.job, line.host, line.pid, line.who)


def _pulse_key(line: PulseLine) -> object:
    return (line.pulse.job, line.pulse.attempt, line.lane.name)


def _node_key(node: NodeStatus | Unwatched) -> object:
    return node.id


PANES: dict[str, Callable[[], RowsPane]] = {
    "map": lambda: RowsPane(
        ("node", "processes", ""), map_cells, lambda line: (line.host, line.number),
        empty="no job runs on the watched nodes", widest=2, id="map",
    ),
    "ranks": lambda: RowsPane(
        ("who", "state", "step", "behind", "for", "does", "node", "pid, role, job"),
        _process, _process_key, empty="no job runs on the watched nodes", id="ranks",
    ),
    "nodes": lambda: RowsPane(
        ("node", "address", "reported", "collectors"), _node, _node_key,
        empty="no node is watched", id="nodes",
    ),
    "GPUs": lambda: RowsPane(
        ("node", "gpu", "utilisation", "memory", "power", "temp", ""), _gpu,
        lambda line: (line.node.id, line.gpu.gpu if line.gpu is not None else ""),
        empty="no node is watched", id="gpus",
    ),
    "incidents": lambda: RowsPane(
        ("id", "when (UTC)", "state", "kind", "what"), _incident, lambda one: one.id,
        empty="no incidents", id="incidents",
    ),
    "pulse": lambda: RowsPane(
        ("job", "usual", "longest", "the longest in each column"), pulse_cells, _pulse_key,
        empty="no step or call has ended yet", id="pulse",
    ),
}  # fmt: skip
"""What makes each pane, by its name."""


def gpu_lines(nodes: Iterable[NodeStatus], told: dict[str, NodeGpus], now: float) -> list[GpuLine]:
    """One line for each GPU that is known, and one for each node of which none is."""
    lines = []
    for node in nodes:
        answer = told.get(node.metrics_url)
        gpus = answer.gpus if answer is not None else ()
        lines += [GpuLine(node, answer, gpu, now) for gpu in gpus or (None,)]
    return lines


def matching(items: Iterable[Any], wanted: str, *fields: str) -> list[Any]:
    """Items that contain ``wanted`` (lower case) in one of their ``fields``."""
    return [
        item
        for item in items
        if not wanted or any(wanted in str(getattr(item, field, "")).lower() for field in fields)
    ]

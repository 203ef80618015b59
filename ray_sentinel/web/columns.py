"""The status as the page gets it: ranks, members and nodes as columns (``columns.js``).

For many ranks that is half as large when compressed: similar values stand side by side, ranks and
their pids are sent as differences, which are small, a node's address is not repeated in its URL,
and what collectors report is sent once for all nodes that report the same. What the page does not
show of a node is left out.

The time of a rank's last step is sent as how much earlier it was than the last step of its job:
while nobody steps, that stays the same, which an age would not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from ray_sentinel.model.metrics import CollectorStatus
from ray_sentinel.model.status import JobStatus, MemberStatus, NodeStatus, RankStatus, Status

DIFFERENCES = ("rank", "pid")
"""Fields of a rank that are sent as the difference from the rank before."""
NODE = ("host", "address", "metrics_url", "is_head")
"""Fields of a node that are sent as they are."""
COLLECTOR = ("name", "state", "success", "message")
"""Fields of a collector that the page shows."""


def in_columns(status: Status) -> dict[str, Any]:
    """All of it that is shown, for ``msgspec.json``."""
    told = {name: getattr(status, name) for name in Status.__struct_fields__}
    if status.coordinator is not None:
        told["coordinator"] = msgspec.structs.asdict(status.coordinator)
    jobs = [_job(job, status.time) for job in status.jobs]
    return told | {"nodes": _nodes(status.nodes), "jobs": jobs}


def _job(job: JobStatus, now: float) -> dict[str, Any]:
    told = {name: getattr(job, name) for name in JobStatus.__struct_fields__}
    members = _columns(job.members, MemberStatus.__struct_fields__)
    members["seconds"] = [_tenths(one) for one in members["seconds"]]
    return told | {"ranks": _ranks(job.ranks, now), "members": members}


def _ranks(ranks: Sequence[RankStatus], now: float) -> dict[str, Any]:
    columns: dict[str, Any] = _columns(ranks, RankStatus.__struct_fields__)
    for name in DIFFERENCES:
        columns[name] = [after - before for before, after in pairwise((0, *columns[name]))]
    ages = columns.pop("step_age_seconds")
    known = [age for age in ages if age is not None]
    least = min(known, default=0.0)
    columns["tenths_earlier"] = [None if age is None else round(10 * (age - least)) for age in ages]
    return {"last_step": round(now - least, 1) if known else None, "columns": columns}


def _nodes(nodes: Sequence[NodeStatus]) -> dict[str, Any]:
    columns = _columns(nodes, NODE)
    columns["metrics_url"] = [
        one.metrics_url.replace(f"//{one.address}:", "//:", 1) if one.address else one.metrics_url
        for one in nodes
    ]
    columns["snapshot_age_seconds"] = [_tenths(one.snapshot_age_seconds) for one in nodes]
    said: dict[tuple[tuple[Any, ...], ...], int] = {}
    columns["collectors"] = [
        said.setdefault(_collector_rows(one.collectors), len(said)) for one in nodes
    ]
    collectors = [[dict(zip(COLLECTOR, one, strict=True)) for one in each] for each in said]
    return {"columns": columns, "collectors": collectors}


def _collector_rows(collectors: Iterable[CollectorStatus]) -> tuple[tuple[Any, ...], ...]:
    return tuple((one.name, one.state, one.success, one.message) for one in collectors)


def _columns(rows: Sequence[Any], names: Iterable[str]) -> dict[str, list[Any]]:
    return {name: [getattr(one, name) for one in rows] for name in names}


def _tenths(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)

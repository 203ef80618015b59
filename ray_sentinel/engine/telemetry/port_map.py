"""The newest state of each RDMA port that telemetry has, including ports that no longer report."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

from ray_sentinel.engine.telemetry.gpu_map import by_number
from ray_sentinel.engine.telemetry.series import NodeTelemetry, Telemetry
from ray_sentinel.model.ports import PortMap, PortRow

STATE = "hw_rdma_port_state"


def port_map(telemetry: Telemetry, now: float, lock: AbstractContextManager[object]) -> PortMap:
    """The newest state of all ports. ``lock`` is taken for one node at a time, as for GPUs."""
    with lock:
        node_ids = list(telemetry.nodes)
    rows = []
    for node_id in node_ids:
        with lock:
            row = _row(telemetry.of(node_id), now)
        if row.ports:
            rows.append(row)
    return PortMap(rows=tuple(sorted(rows, key=lambda row: by_number(row.host))))


def _row(node: NodeTelemetry, now: float) -> PortRow:
    found: dict[str, tuple[bool, int]] = {}
    for labels, series in node.series.get(STATE, {}).items():
        if math.isfinite(series.last):
            named = dict(labels)
            port = f"{named.get('device', '')}/{named.get('port', '')}".strip("/")
            found[port] = series.last >= 1, max(0, round(now - series.at))
    ports = sorted(found, key=by_number)
    return PortRow(
        host=node.host,
        ports=tuple(ports),
        active=tuple(found[port][0] for port in ports),
        ages=tuple(found[port][1] for port in ports),
    )

"""The newest state of each RDMA port that telemetry has, with its traffic and its errors, including
ports that no longer report."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from ray_sentinel.engine.telemetry.series import (
    KEPT_SECONDS,
    NodeTelemetry,
    Telemetry,
    TelemetrySeries,
)
from ray_sentinel.model.metrics import Labels
from ray_sentinel.model.ports import PortError, PortMap, PortRow
from ray_sentinel.text import natural

STATE = "hw_rdma_port_state"
RECEIVED, SENT = "hw_rdma_rx_bytes_total", "hw_rdma_tx_bytes_total"
ERRORS: dict[str, str] = {
    "hw_rdma_link_downed_total": "link downed",
    "hw_rdma_symbol_errors_total": "symbol errors",
    "hw_rdma_req_tx_retry_excd_err_total": "sends given up after all retries",
    "hw_rdma_req_rx_cqe_err_total": "failed completions",
    "hw_rdma_tx_ack_timeout_total": "ACK time-outs",
    "hw_rdma_tx_retx_pkts_total": "retransmitted packets",
}
"""Counters, the gravest first, and what they count in words."""
TRAFFIC_SECONDS = 60.0
"""Over which traffic is averaged: of large clusters some counters come every half minute."""

_Found = Mapping[Labels, TelemetrySeries]


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
    ordered = tuple(sorted(rows, key=lambda row: natural(row.host)))
    return PortMap(rows=ordered, error_seconds=KEPT_SECONDS)


def _row(node: NodeTelemetry, now: float) -> PortRow:
    found: dict[str, Labels] = {}
    states = node.of_name(STATE)
    for labels, series in states.items():
        if math.isfinite(series.last):
            named = dict(labels)
            found[f"{named.get('device', '')}/{named.get('port', '')}".strip("/")] = labels
    ports = sorted(found, key=natural)
    mine = [found[port] for port in ports]
    received, sent = (node.of_name(name) for name in (RECEIVED, SENT))
    counted = [(node.of_name(name), words) for name, words in ERRORS.items()]
    return PortRow(
        host=node.host,
        ports=tuple(ports),
        active=tuple(states[labels].last >= 1 for labels in mine),
        ages=tuple(max(0, round(now - states[labels].at)) for labels in mine),
        received=tuple(_rate(received, labels, now) for labels in mine),
        sent=tuple(_rate(sent, labels, now) for labels in mine),
        errors=tuple(_errors(counted, labels, now) for labels in mine),
    )


def _rate(found: _Found, labels: Labels, now: float) -> int | None:
    """Bytes per second."""
    series = found.get(labels)
    ends = _ends(series, now, TRAFFIC_SECONDS) if series is not None else None
    if ends is None:
        return None
    (begun, first), (ended, last) = ends
    # A counter that fell was reset.
    return round((last - first) / (ended - begun)) if last >= first else None


def _errors(
    counted: Sequence[tuple[_Found, str]], labels: Labels, now: float
) -> tuple[PortError, ...]:
    told = []
    for found, words in counted:
        series = found.get(labels)
        ends = _ends(series, now, KEPT_SECONDS) if series is not None else None
        if series is None or ends is None or ends[0][1] == ends[1][1]:
            continue  # nearly all stand still: no need to read what is between
        rose = series.rise(now, KEPT_SECONDS)
        if rose >= 1:
            told.append((words, round(rose)))
    return tuple(told)


_Sample = tuple[float, float]


def _ends(series: TelemetrySeries, now: float, seconds: float) -> tuple[_Sample, _Sample] | None:
    """The first and the last sample of the last ``seconds``; None where these are not two."""
    times, values = series.times, series.values
    places = range(bisect_left(times, now - seconds), len(times))
    first = next((one for one in places if math.isfinite(values[one])), None)
    last = next((one for one in reversed(places) if math.isfinite(values[one])), None)
    if first is None or last is None or times[last] <= times[first]:
        return None
    return (times[first], values[first]), (times[last], values[last])

"""The newest values of each GPU that telemetry has, including GPUs that no longer report."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

from ray_sentinel.engine.telemetry.gpus import POWER, UTILISATION
from ray_sentinel.engine.telemetry.series import NodeTelemetry, Telemetry, TelemetrySeries
from ray_sentinel.model.gpus import GpuMap, GpuQuantity, GpuRow
from ray_sentinel.text import natural

INFO = "hw_gpu_info"
CLOCK = "hw_gpu_clock_mhz"
SERIES: dict[GpuQuantity, tuple[str, str]] = {
    "utilisation": (UTILISATION, ""),
    "memory": ("hw_gpu_vram_used_bytes", "hw_gpu_vram_total_bytes"),
    "power": (POWER, ""),
    "temperature": ("hw_gpu_temperature_celsius", ""),
    "clock": (CLOCK, ""),
    "memory-clock": (CLOCK, ""),
}
"""The series of each quantity, and the one that it is divided by."""
TYPES: dict[GpuQuantity, str] = {"clock": "sclk", "memory-clock": "mclk"}
"""The label ``type`` of a quantity's series, where several share a name."""
DIGITS: dict[GpuQuantity, int] = {"utilisation": 2, "memory": 2}
"""Digits after the point, where there are any: more than a colour shows."""


def gpu_map(
    telemetry: Telemetry, quantity: GpuQuantity, now: float, lock: AbstractContextManager[object]
) -> GpuMap:
    """The newest values of all GPUs. ``lock`` is taken for one node at a time, so that whoever
    changes the values hardly waits."""
    with lock:
        node_ids = list(telemetry.nodes)
    rows = []
    for node_id in node_ids:
        with lock:
            row = _row(telemetry.of(node_id), quantity, now)
        if row.gpus:
            rows.append(row)
    return GpuMap(quantity=quantity, rows=tuple(sorted(rows, key=lambda row: natural(row.host))))


def _row(node: NodeTelemetry, quantity: GpuQuantity, now: float) -> GpuRow:
    found = newest_values(node, quantity)
    gpus = sorted({*found, *_by_gpu(node, INFO)}, key=natural)
    values: list[float | None] = []
    ages: list[int | None] = []
    for gpu in gpus:
        value, at = found.get(gpu, (math.nan, now))
        known = math.isfinite(value)
        values.append(round(value, DIGITS.get(quantity, 0)) if known else None)
        ages.append(max(0, round(now - at)) if known else None)
    return GpuRow(host=node.host, gpus=tuple(gpus), values=tuple(values), ages=tuple(ages))


def newest_values(node: NodeTelemetry, quantity: GpuQuantity) -> dict[str, tuple[float, float]]:
    """The newest value of each GPU, and when it was sampled; NaN where what it is divided by is not
    known."""
    name, whole = SERIES[quantity]
    found = _by_gpu(node, name, TYPES.get(quantity, ""))
    wholes = _by_gpu(node, whole) if whole else {}
    values = {}
    for gpu, series in found.items():
        value = series.last
        if whole:
            most = wholes[gpu].last if gpu in wholes else math.nan
            value = value / most if most > 0 else math.nan
        values[gpu] = value, series.at
    return values


def _by_gpu(node: NodeTelemetry, name: str, kind: str = "") -> dict[str, TelemetrySeries]:
    """The most recent series of a metric for each GPU, of one type if one is requested: a new
    driver may change other labels."""
    found: dict[str, TelemetrySeries] = {}
    for key, series in node.of_name(name).items():
        labels = dict(key)
        gpu = labels.get("gpu")
        if kind and labels.get("type") != kind:
            continue
        if gpu is not None and math.isfinite(series.last):
            known = found.get(gpu)
            if known is None or known.at < series.at:
                found[gpu] = series
    return found

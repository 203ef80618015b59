"""First and last sample of a Prometheus, which it does not tell: asked for in ever finer steps."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ray_sentinel import regex as re
from ray_sentinel.store.prometheus_http import PrometheusHttp
from ray_sentinel.store.prometheus_matrix import ask_matrix, pairs_of

MAX_POINTS = 10_000
"""Points of one series in one range query; Prometheus itself refuses more than 11,000."""


def find_span(http: PrometheusHttp, names: Sequence[str]) -> tuple[float, float] | None:
    """First and last sample of a Prometheus, by asking it for ever finer ranges.

    ``/api/v1/status/tsdb`` tells the range of the head block only, and nothing at all of a
    database that holds finished blocks alone.
    """
    if not names:
        return None
    now = time.time()
    lowest = re.search(
        r"^prometheus_tsdb_lowest_timestamp_seconds (\S+)$", http.text("/metrics"), re.MULTILINE
    )
    start = float(lowest.group(1)) if lowest else now - 2 * 365 * 86400.0
    end = now + 86400.0
    if not 0 < start < end:
        start = now - 2 * 365 * 86400.0
    probes = _probe_names(names)
    for step in (86400.0, 3600.0, 300.0, 15.0):
        while (end - start) / step > MAX_POINTS:
            step *= 2
        found = _presence(http, probes, start, end, step)
        if found is None:
            return None
        start, end = found[0] - step, found[1]
    return start, end


def _presence(
    http: PrometheusHttp, probes: str, start: float, end: float, step: float
) -> tuple[float, float] | None:
    query = {
        "query": f'count(last_over_time({{__name__=~"{probes}"}}[{round(step)}s]))',
        "start": stamp(start),
        "end": stamp(end + step),
        "step": f"{step:.3f}",
    }
    found = [pairs_of(series.values) for series in ask_matrix(http, "/api/v1/query_range", query)]
    times = np.concatenate([pairs[:, 0] for pairs in found]) if found else np.empty(0)
    return (float(times.min()), float(times.max())) if times.size else None


def _probe_names(names: Sequence[str]) -> str:
    wanted = ("up", "hw_scrape_duration_seconds", "hw_procs_running", "tb_step", "train_step",
              "ray_node_mem_used", "hw_gpu_power_watts")  # fmt: skip
    found = [name for name in wanted if name in names]
    return "|".join(found or [re.escape(name) for name in names[:20]])


def stamp(moment: float) -> str:
    """Unix seconds as the API takes them, to the millisecond that it keeps."""
    return f"{moment:.3f}"

"""A node that has all the hardware there is: a family of every series that we serve, growing."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ray_sentinel.model.metrics import Family, Metric, Sample
from tests.support.series_names import catalogue

LABELS: dict[str, tuple[str, ...]] = {
    "gpu": ("0", "1"),
    "type": ("sclk", "mclk"),
    "state": ("running", "skipped", "quarantined", "stuck"),
    "collector": ("host", "nvml"),
    "xid": ("13", "79"),
    "device": ("mlx5_0",),
    "job": ("llm",),
    "rank": ("0", "1"),
    "name": ("loss", "throughput"),
    "phase": ("train", "checkpoint"),
    "mode": ("user", "idle"),
    "kind": ("rank-dead", "oom"),
    "cause": ("any", "failure"),
}
"""Values of labels; one that is not here has ``x``."""
OF_TENSORBOARD = (
    Metric("tb_learning_loss", "gauge", "A scalar of the event files."),
    Metric("tb_perf_step_time_seconds", "gauge", "A scalar of the event files."),
)
ONE = {"ray_sentinel_collector_success", "train_rank_alive", "hw_rdma_port_state"}


def families(started: float) -> tuple[Family, ...]:
    """Everything, as it is now; counters have grown by one a second since ``started``."""
    metrics = [*catalogue().values(), *OF_TENSORBOARD]
    return tuple(Family(metric, tuple(_samples(metric, started))) for metric in metrics)


def _samples(metric: Metric, started: float) -> Iterator[Sample]:
    for values in _combinations([LABELS.get(label, ("x",)) for label in metric.labels]):
        yield metric(_value(metric, values, started), *values)


def _combinations(choices: list[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    if not choices:
        yield ()
        return
    for first in choices[0]:
        for rest in _combinations(choices[1:]):
            yield (first, *rest)


def _value(metric: Metric, values: tuple[str, ...], started: float) -> float:
    now = time.time()
    if metric.name.endswith("timestamp_seconds"):
        return now
    if metric.kind == "counter" or metric.name in {"train_step", "tb_step"}:
        return 100.0 + now - started
    if metric.name in ONE:
        # One rank has ended, one port is down: the panels that show only that have something.
        return float(values[-1] != "1" or metric.name == "hw_rdma_port_state")
    return 1.0

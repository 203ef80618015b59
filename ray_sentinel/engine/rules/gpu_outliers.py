"""Rules on one GPU of a job whose value differs from its peers': equal work should show equal
values."""

from __future__ import annotations

import abc
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alerting import AlertRule, jobs_at_work
from ray_sentinel.engine.telemetry.gpus import UTILISATION
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import (
    GPU_CLOCK_BELOW_PEERS,
    GPU_HOTTER_THAN_PEERS,
    GPU_POWER_BELOW_PEERS,
    GPU_WARM_FOR_OUTLIER,
)

LEAST_PEERS = 3
"""Fewest other GPUs from which there is a usual value."""
STEADY = 0.8
"""Share of a window's samples that must lie on the same side: one noisy sensor is no outlier."""
AT_WORK = 0.3
"""Utilisation (0 to 1) from which a GPU is at work at all."""


class OutlierRule(AlertRule):
    """Warns about each GPU whose median over ``seconds`` is too far from the median of its
    peers."""

    metric: ClassVar[str]
    labels: ClassVar[dict[str, str]] = {}
    text: ClassVar[str]
    """The text of the alert, with ``{value}`` and ``{peers}``."""

    @abc.abstractmethod
    def too_far(self, value: float, peers: float) -> bool:
        """Whether a GPU's value is outside the thresholds."""

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for job in jobs_at_work(view, now):
            for host, gpu, value, peers in self._outliers(view, job, now):
                text = self.text.format(value=value, peers=peers)
                yield self.alert(text, kind="slow", job=job.job, host=host, gpu=gpu)

    def _outliers(
        self, view: ClusterView, job: JobView, now: float
    ) -> Iterator[tuple[str, str, float, float]]:
        """Host, index, median and the peers' median of each GPU whose median is too far from the
        peers' and whose values stay on that side. GPUs that rest by design are left out."""
        found: dict[tuple[str, str], list[float]] = {}
        seconds = self.thresholds.seconds
        for node_id, index, node in view.gpu_levels.places(view.telemetry, job, now):
            series = node.one(self.metric, now, gpu=index, **self.labels)
            use = node.one(UTILISATION, now, gpu=index)
            if series is None or not series.covers(now, seconds):
                continue
            if use is not None and (use.level(now, seconds) or 0.0) < AT_WORK:
                continue
            found[node_id, index] = series.within(now, seconds)
        medians = {key: statistics.median(values) for key, values in found.items()}
        if len(medians) <= LEAST_PEERS:
            return
        ordered = sorted(medians.values())
        for key, values in found.items():
            value, peers = medians[key], median_of_others(ordered, medians[key])
            if not self.too_far(value, peers):
                continue
            side = sum((other < peers) == (value < peers) for other in values)
            if side >= STEADY * len(values):
                yield view.host_of(key[0]), key[1], value, peers


def median_of_others(ordered: Sequence[float], value: float) -> float:
    """The median of ascending numbers, two at least, without ``value``, which is one of them."""
    place, others = bisect_left(ordered, value), len(ordered) - 1

    def other(number: int) -> float:
        return ordered[number + (number >= place)]

    return (other((others - 1) // 2) + other(others // 2)) / 2


class GpuClockOutlier(OutlierRule):
    """A working GPU is clocked well below its peers: the job waits for it in every step."""

    name = "gpu.clock_outlier"
    metric = "hw_gpu_clock_mhz"
    labels: ClassVar[dict[str, str]] = {"type": "sclk"}
    Thresholds = thresholds(
        seconds=GPU_CLOCK_BELOW_PEERS.seconds, ratio=GPU_CLOCK_BELOW_PEERS.limit
    )
    text = "runs at {value:.0f} MHz, its peers at {peers:.0f} MHz"

    def too_far(self, value: float, peers: float) -> bool:
        return bool(value < self.thresholds.ratio * peers)


class GpuPowerOutlier(OutlierRule):
    """A GPU draws much less than its peers: it is capped or throttled, or its rank does less."""

    name = "gpu.power_outlier"
    metric = "hw_gpu_power_watts"
    Thresholds = thresholds(
        seconds=GPU_POWER_BELOW_PEERS.seconds, ratio=GPU_POWER_BELOW_PEERS.limit
    )
    text = "draws {value:.0f} W, its peers {peers:.0f} W"

    def too_far(self, value: float, peers: float) -> bool:
        return bool(value < self.thresholds.ratio * peers)


class GpuTemperatureOutlier(OutlierRule):
    """A GPU is much hotter than its peers: its cooling fails, or it is about to throttle."""

    name = "gpu.temperature_outlier"
    metric = "hw_gpu_temperature_celsius"
    Thresholds = thresholds(
        seconds=GPU_HOTTER_THAN_PEERS.seconds,
        above=GPU_HOTTER_THAN_PEERS.limit,
        celsius=GPU_WARM_FOR_OUTLIER.limit,
    )
    text = "is at {value:.0f} °C, its peers at {peers:.0f} °C"

    def too_far(self, value: float, peers: float) -> bool:
        return bool(value > max(self.thresholds.celsius, peers + self.thresholds.above))

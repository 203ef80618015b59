"""Rules on one GPU of a job whose value differs from its peers': equal work should show equal
values."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import GpuAlertRule, GpuSeen, WatchedPart
from ray_sentinel.engine.telemetry.series import median
from ray_sentinel.evidence.minority import median_of_others
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import (
    GPU_AT_WORK,
    GPU_CLOCK_BELOW_PEERS,
    GPU_HOTTER_THAN_PEERS,
    GPU_POWER_BELOW_PEERS,
    GPU_WARM_FOR_OUTLIER,
)

LEAST_PEERS = 3
"""Fewest other GPUs from which there is a usual value."""
STEADY = 0.8
"""Share of a window's samples that must lie on the same side: one noisy sensor is no outlier."""


class OutlierRule(GpuAlertRule):
    """Warns about each GPU whose median over ``seconds`` is too far from the median of its
    peers."""

    metric: ClassVar[str]
    labels: ClassVar[dict[str, str]] = {}
    text: ClassVar[str]
    """The text of the alert, with ``{value}`` and ``{peers}``."""

    @abc.abstractmethod
    def too_far(self, value: float, peers: float) -> bool:
        """Whether a GPU's value is outside the thresholds."""

    def jobs(self, view: ClusterView, at_work: Sequence[JobView], now: float) -> Iterable[JobView]:
        return at_work

    def read(self, part: WatchedPart, job: JobView) -> Iterator[GpuSeen]:
        """The median of each GPU. Those that rest by design are left out."""
        now, seconds = part.now, self.thresholds.seconds
        for place in part.places(job):
            node_id, index, node = place
            series = node.one(self.metric, now, gpu=index, **self.labels)
            if series is None or not series.covers(now, seconds):
                continue
            use = part.utilisation(place, seconds)
            if use is not None and use < GPU_AT_WORK.limit:
                continue
            yield GpuSeen(job.key, node_id, index, median(series.within(now, seconds)))

    def judge(
        self, view: ClusterView, job: JobView, seen: Sequence[GpuSeen], now: float
    ) -> Iterator[Alert]:
        if len(seen) <= LEAST_PEERS:
            return
        ordered = sorted(gpu.value for gpu in seen)
        for gpu in seen:
            peers = median_of_others(ordered, gpu.value)
            if self.too_far(gpu.value, peers) and self._stays(view, gpu, peers, now):
                text = self.text.format(value=gpu.value, peers=peers)
                host = view.host_of(gpu.node)
                yield self.alert(text, kind="slow", job=job.job, host=host, gpu=gpu.gpu)

    def _stays(self, view: ClusterView, gpu: GpuSeen, peers: float, now: float) -> bool:
        """Whether its values stay on the side of the peers' median on which their median is."""
        node = view.telemetry.of(gpu.node)
        series = node.one(self.metric, now, gpu=gpu.gpu, **self.labels)
        values = series.within(now, self.thresholds.seconds) if series is not None else []
        side = sum((value < peers) == (gpu.value < peers) for value in values)
        return bool(values) and side >= STEADY * len(values)


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

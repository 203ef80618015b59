"""gpu.clock_outlier: a GPU at work is clocked well below its peers in the same job."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.peers import outliers
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert


class GpuClockOutlierThresholds(Thresholds, frozen=True, kw_only=True):
    """``ratio`` of the peers' median core clock, over ``seconds``."""

    seconds: float = 120.0
    ratio: float = 0.85


class GpuClockOutlier(AlertRule):
    """The job waits for it in every step."""

    name = "gpu.clock_outlier"
    Thresholds = GpuClockOutlierThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for found in outliers(view, "hw_gpu_clock_mhz", now, self.thresholds.seconds, type="sclk"):
            if found.value < self.thresholds.ratio * found.peers:
                yield found.alert(
                    self.name,
                    f"runs at {found.value:.0f} MHz, its peers at {found.peers:.0f} MHz",
                    kind="slow",
                )

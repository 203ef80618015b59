"""gpu.temperature_outlier: a GPU is much hotter than its peers in the same job."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.peers import outliers
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert


class GpuTemperatureOutlierThresholds(Thresholds, frozen=True, kw_only=True):
    """``above`` the peers' median and at least ``celsius``, over ``seconds``."""

    seconds: float = 120.0
    above: float = 15.0
    celsius: float = 75.0


class GpuTemperatureOutlier(AlertRule):
    """Its cooling fails, or it is about to throttle."""

    name = "gpu.temperature_outlier"
    Thresholds = GpuTemperatureOutlierThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for found in outliers(view, "hw_gpu_temperature_celsius", now, self.thresholds.seconds):
            if found.value > max(self.thresholds.celsius, found.peers + self.thresholds.above):
                yield found.alert(
                    self.name,
                    f"is at {found.value:.0f} °C, its peers at {found.peers:.0f} °C",
                    kind="slow",
                )

"""gpu.power_outlier: a GPU at work draws much less than its peers in the same job."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.peers import outliers
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert


class GpuPowerOutlierThresholds(Thresholds, frozen=True, kw_only=True):
    """``ratio`` of the peers' median power, over ``seconds``."""

    seconds: float = 120.0
    ratio: float = 0.75


class GpuPowerOutlier(AlertRule):
    """It does less: capped, throttled, or its rank has less to do."""

    name = "gpu.power_outlier"
    Thresholds = GpuPowerOutlierThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for found in outliers(view, "hw_gpu_power_watts", now, self.thresholds.seconds):
            if found.value < self.thresholds.ratio * found.peers:
                yield found.alert(
                    self.name,
                    f"draws {found.value:.0f} W, its peers {found.peers:.0f} W",
                    kind="slow",
                )

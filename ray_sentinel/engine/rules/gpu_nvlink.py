"""gpu.nvlink: errors on the links between GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.counters import rises
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert

METRICS = (
    ("hw_gpu_nvlink_errors_total", "NVLink errors"),
    ("hw_gpu_ras_xgmi_ce_total", "correctable XGMI errors"),
)


class GpuNvlinkThresholds(Thresholds, frozen=True, kw_only=True):
    """``least`` new errors within ``seconds``."""

    seconds: float = 300.0
    least: float = 100.0


class GpuNvlink(AlertRule):
    """A link that replays is slow, and may go down."""

    name = "gpu.nvlink"
    Thresholds = GpuNvlinkThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for found in rises(view, METRICS, now, limits.seconds):
            if found.count >= limits.least:
                yield found.alert(
                    self.name, "warning", "slow", f"{found.count:.0f} new {found.name}"
                )

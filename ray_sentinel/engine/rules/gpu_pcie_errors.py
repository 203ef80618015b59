"""gpu.pcie_errors: fatal or non-fatal errors on a GPU's PCIe link (AER)."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.counters import rises
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert

METRICS = (
    ("hw_gpu_pcie_fatal_total", "fatal PCIe errors"),
    ("hw_gpu_pcie_nonfatal_total", "non-fatal PCIe errors"),
)


class GpuPcieErrorsThresholds(Thresholds, frozen=True, kw_only=True):
    """``least`` new errors within ``seconds``."""

    seconds: float = 600.0
    least: float = 1.0


class GpuPcieErrors(AlertRule):
    """Correctable ones are everyday; these are not."""

    name = "gpu.pcie_errors"
    Thresholds = GpuPcieErrorsThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for found in rises(view, METRICS, now, limits.seconds):
            if found.count >= limits.least:
                yield found.alert(
                    self.name, "warning", "device-stuck", f"{found.count:.0f} new {found.name}"
                )

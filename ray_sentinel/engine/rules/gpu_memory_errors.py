"""gpu.memory_errors: uncorrectable errors of a GPU's memory or blocks (ECC, RAS)."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.counters import rises
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert

METRICS = (
    ("hw_gpu_ecc_uncorrected_total", "uncorrectable ECC errors"),
    ("hw_gpu_ras_umc_ue_total", "uncorrectable errors (umc)"),
    ("hw_gpu_ras_xgmi_ue_total", "uncorrectable errors (xgmi)"),
    ("hw_gpu_ras_gfx_ue_total", "uncorrectable errors (gfx)"),
    ("hw_gpu_ras_mmhub_ue_total", "uncorrectable errors (mmhub)"),
    ("hw_gpu_ras_sdma_ue_total", "uncorrectable errors (sdma)"),
)


class GpuMemoryErrorsThresholds(Thresholds, frozen=True, kw_only=True):
    """``least`` new errors within ``seconds``."""

    seconds: float = 600.0
    least: float = 1.0


class GpuMemoryErrors(AlertRule):
    """The process that used the memory is killed, or computes nonsense."""

    name = "gpu.memory_errors"
    Thresholds = GpuMemoryErrorsThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for found in rises(view, METRICS, now, limits.seconds):
            if found.count >= limits.least:
                yield found.alert(
                    self.name, "critical", "device-stuck", f"{found.count:.0f} new {found.name}"
                )

"""host.memory_pressure: a host spends its time to free memory."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule, watched
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert


class HostMemoryPressureThresholds(Thresholds, frozen=True, kw_only=True):
    """``percent`` of the time (PSI full) at the median over ``seconds``."""

    seconds: float = 60.0
    percent: float = 20.0


class HostMemoryPressure(AlertRule):
    """It thrashes: an OOM kill is near."""

    name = "host.memory_pressure"
    Thresholds = HostMemoryPressureThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for node, telemetry in watched(view):
            for _, series in telemetry.get("hw_mem_pressure_full_pct", now):
                level = series.level(now, limits.seconds)
                if (
                    level is not None
                    and series.covers(now, limits.seconds)
                    and level >= limits.percent
                ):
                    yield Alert(
                        rule=self.name,
                        severity="warning",
                        host=node.node.host,
                        text=f"all tasks waited for memory {level:.0f} % of the time",
                    )

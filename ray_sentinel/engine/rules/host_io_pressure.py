"""host.io_pressure: nearly all tasks of a host have been waiting for storage."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule, watched
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert


class HostIoPressureThresholds(Thresholds, frozen=True, kw_only=True):
    """``percent`` of the time (PSI full, ten-second average) at the median over ``seconds``."""

    seconds: float = 120.0
    percent: float = 60.0


class HostIoPressure(AlertRule):
    """A save makes it for a moment; this lasts."""

    name = "host.io_pressure"
    Thresholds = HostIoPressureThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for node, telemetry in watched(view):
            for _, series in telemetry.get("hw_io_pressure_full_pct", now):
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
                        text=f"all tasks waited for storage {level:.0f} % of the time",
                    )

"""host.io_pressure: nearly all tasks of a host have been waiting for storage."""

from __future__ import annotations

from ray_sentinel.engine.pressure import PressureRule
from ray_sentinel.engine.rule import Thresholds


class HostIoPressureThresholds(Thresholds, frozen=True, kw_only=True):
    """``percent`` of the time (PSI full, ten-second average) at the median over ``seconds``."""

    seconds: float = 120.0
    percent: float = 60.0


class HostIoPressure(PressureRule):
    """A save makes it for a moment; this lasts."""

    name = "host.io_pressure"
    Thresholds = HostIoPressureThresholds
    family = "hw_io_pressure_full_pct"
    awaited = "storage"

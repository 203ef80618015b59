"""host.memory_pressure: a host spends its time to free memory."""

from __future__ import annotations

from ray_sentinel.engine.pressure import PressureRule
from ray_sentinel.engine.rule import Thresholds


class HostMemoryPressureThresholds(Thresholds, frozen=True, kw_only=True):
    """``percent`` of the time (PSI full) at the median over ``seconds``."""

    seconds: float = 60.0
    percent: float = 20.0


class HostMemoryPressure(PressureRule):
    """It thrashes: an OOM kill is near."""

    name = "host.memory_pressure"
    Thresholds = HostMemoryPressureThresholds
    family = "hw_mem_pressure_full_pct"
    awaited = "memory"

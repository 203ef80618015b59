"""Rules on the pressure that the kernel measures (PSI): what the tasks of a host wait for.

"Full" is the share of the time in which no task could go on, in percent, as an average of ten
seconds (kernel documentation, accounting/psi.rst).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import IO_PRESSURE, MEMORY_THRASHING


class PressureRule(NodeAlertRule):
    """Warns of a host whose pressure stays at ``percent`` over ``seconds``, its thresholds."""

    metric: ClassVar[str]
    """The name of the gauge, in percent."""
    awaited: ClassVar[str]
    """What the tasks wait for, in one word."""

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        for node, telemetry in part.nodes:
            for _, series in telemetry.get(self.metric, part.now):
                level = series.settled(part.now, self.thresholds.seconds)
                if level is not None and level >= self.thresholds.percent:
                    text = f"all tasks waited for {self.awaited} for {level:.0f} % of the time"
                    yield self.alert(text, host=node.node.host)


class HostIoPressure(PressureRule):
    """Tasks wait for input and output. A save causes that for a moment; this lasts."""

    name = "host.io_pressure"
    metric = "hw_io_pressure_full_pct"
    awaited = "storage"
    Thresholds = thresholds(seconds=IO_PRESSURE.seconds, percent=IO_PRESSURE.limit)


class HostMemoryPressure(PressureRule):
    """The host thrashes: an OOM kill is near."""

    name = "host.memory_pressure"
    metric = "hw_mem_pressure_full_pct"
    awaited = "memory"
    Thresholds = thresholds(seconds=MEMORY_THRASHING.seconds, percent=MEMORY_THRASHING.limit)

"""Rules on the pressure that the kernel measures (PSI): what the tasks of a host wait for.

"Full" is the share of the time in which no task could go on, in percent (kernel documentation,
accounting/psi.rst).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ray_sentinel.engine.alerting import AlertRule, watched
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.model.alert import Alert


class PressureRule(AlertRule):
    """Warns of a host whose pressure stays at ``percent`` over ``seconds``, its thresholds."""

    family: ClassVar[str]
    """The gauge, in percent."""
    awaited: ClassVar[str]
    """What the tasks wait for, in a word."""

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for node, telemetry in watched(view):
            for _, series in telemetry.get(self.family, now):
                level = series.settled(now, self.thresholds.seconds)
                if level is not None and level >= self.thresholds.percent:
                    yield Alert(
                        rule=self.name,
                        severity="warning",
                        host=node.node.host,
                        text=f"all tasks waited for {self.awaited} {level:.0f} % of the time",
                    )

"""host.dstate: processes pile up in state D, all in one kernel function."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import BLOCKED_PROCESSES


class HostDstate(NodeAlertRule):
    """A mount or a driver hangs; a function of the GPU driver points to the latter.

    Thresholds: ``processes`` in one function, at the median over ``seconds``.
    """

    name = "host.dstate"
    Thresholds = thresholds(seconds=BLOCKED_PROCESSES.seconds, processes=BLOCKED_PROCESSES.limit)

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        limits = self.thresholds
        for node, telemetry in part.nodes:
            for labels, series in telemetry.get("hw_dstate_processes", part.now):
                level = series.settled(part.now, limits.seconds)
                if level is not None and level >= limits.processes:
                    yield self.alert(
                        host=node.node.host,
                        text=f"{level:.0f} processes are blocked in the kernel, in "
                        f"{labels.get('wchan') or '?'}",
                    )

"""host.memory_low: a host is about to run out of memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.engine.telemetry.series import TelemetrySeries
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import MEMORY_LOW, MEMORY_RUNS_OUT

PARTS = 6
"""How many parts a window has, in each of which the memory must fall: a trend, not one leap."""


class HostMemoryLow(NodeAlertRule):
    """The next step after this is host.oom_kill.

    Thresholds: ``share`` of the memory left; or the trend of the last ``seconds`` leads to none
    within ``horizon_seconds``, with less than ``trend_share`` left.
    """

    name = "host.memory_low"
    Thresholds = thresholds(
        share=MEMORY_LOW.limit,
        seconds=MEMORY_RUNS_OUT.seconds,
        horizon_seconds=900.0,
        trend_share=MEMORY_RUNS_OUT.limit,
    )

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        for node, telemetry in part.nodes:
            total = telemetry.one("hw_mem_total_bytes", part.now)
            left = telemetry.one("hw_mem_available_bytes", part.now)
            if total is None or left is None or total.last <= 0:
                continue
            share = left.last / total.last
            end = self._runs_out(left, part.now)
            soon = end is not None and share < self.thresholds.trend_share
            if share < self.thresholds.share or soon:
                when = (
                    f"; at this rate it runs out in {end / 60:.0f} min" if end is not None else ""
                )
                yield self.alert(
                    host=node.node.host,
                    text=f"{share:.0%} of {total.last / 2**30:.0f} GiB is left{when}",
                )

    def _runs_out(self, left: TelemetrySeries, now: float) -> float | None:
        """Seconds until no memory is left, at the recent rate; None if that is not soon."""
        if not left.covers(now, self.thresholds.seconds):
            return None
        values = left.within(now, self.thresholds.seconds)
        size = max(1, len(values) // PARTS)
        means = [sum(values[i : i + size]) / size for i in range(0, size * PARTS, size)]
        falls = [before - after for before, after in pairwise(means)]
        fall = means[0] - means[-1]
        # Steady, not one leap: a dataset that was loaded stays.
        if fall <= 0 or min(falls) <= 0 or max(falls) > 0.5 * fall:
            return None
        speed = fall / (self.thresholds.seconds * (PARTS - 1) / PARTS)
        end = values[-1] / speed
        return end if end <= self.thresholds.horizon_seconds else None

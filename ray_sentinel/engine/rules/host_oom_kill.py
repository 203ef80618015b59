"""host.oom_kill: the kernel has killed a process for want of memory."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.alerting import AlertRule
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.counters import rises
from ray_sentinel.engine.rule import Thresholds
from ray_sentinel.model.alert import Alert

METRICS = (
    ("hw_oom_kills_total", "OOM kills"),
    ("hw_cgroup_oom_kills_total", "OOM kills in the container"),
)


class HostOomKillThresholds(Thresholds, frozen=True, kw_only=True):
    """``least`` within ``seconds``."""

    seconds: float = 600.0
    least: float = 1.0


class HostOomKill(AlertRule):
    """If it was a rank, its exit says so; if a dataloader worker, the rank waits for it."""

    name = "host.oom_kill"
    Thresholds = HostOomKillThresholds

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        limits = self.thresholds
        for found in rises(view, METRICS, now, limits.seconds):
            if found.count >= limits.least:
                yield found.alert(
                    self.name, "critical", "oom-killed", f"{found.count:.0f} {found.name}"
                )

"""host.cpu_contention: far more threads compete for the CPUs than usual for the job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.engine.telemetry.series import THIN_SECONDS
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import CPU_CONTENTION


class HostCpuContention(NodeAlertRule):
    """Other work runs on the host; the ranks there are late to every collective.

    Thresholds: ``factor`` times the usual number of runnable threads and ``above`` it, at the
    median over ``seconds``; what is usual is learned from at least ``learn_seconds`` before.
    """

    name = "host.cpu_contention"
    Thresholds = thresholds(
        seconds=CPU_CONTENTION.seconds, factor=2.0, above=CPU_CONTENTION.limit, learn_seconds=180.0
    )

    def jobs(self, view: ClusterView, at_work: Sequence[JobView], now: float) -> Iterable[JobView]:
        return at_work

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        limits, now = self.thresholds, part.now
        for node, telemetry in part.nodes:
            series = telemetry.one("hw_procs_running", now)
            here = [job for job in part.jobs_of(self.name) if node.node.id in job.live_nodes]
            if series is None or not here:
                continue
            begun = here[-1].first_seen
            level = series.level(now, limits.seconds)
            before = [
                (at, value)
                for at, value in series.samples
                if at > begun and now - at > 2 * limits.seconds
            ]
            learned = now - begun - 2 * limits.seconds >= limits.learn_seconds
            if level is None or len(before) < 12 or not learned:
                continue
            # Old samples may be kept less often than new ones: each stretch of time counts once.
            levels = sorted({at // THIN_SECONDS: value for at, value in before}.values())
            usual = levels[len(levels) // 2]
            if level > max(limits.factor * usual, usual + limits.above):
                yield self.alert(
                    kind="slow",
                    host=node.node.host,
                    text=f"{level:.0f} threads compete for the CPUs, usually {usual:.0f}",
                )

"""Rules on what a host runs out of: memory, room on disks, and processes that can go on.

Pressure (PSI) "full" is the share of the time in which no task could go on, in percent, as an
average of ten seconds (kernel documentation, accounting/psi.rst).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import NodeAlertRule, WatchedPart
from ray_sentinel.engine.telemetry.series import THIN_SECONDS, TelemetrySeries
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import (
    BLOCKED_PROCESSES,
    CPU_CONTENTION,
    DISK_FULL,
    DISK_FULL_BYTES,
    IO_PRESSURE,
    MEMORY_LOW,
    MEMORY_RUNS_OUT,
    MEMORY_THRASHING,
)


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


class HostDstate(NodeAlertRule):
    """Processes pile up in state D, all in one kernel function.

    A mount or a driver hangs; a function of the GPU driver points to the latter.

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


class HostDiskFull(NodeAlertRule):
    """A watched file system is (nearly) full.

    The next checkpoint fails, and Ray stops placing work at 95 %.

    Thresholds: Less than ``share`` of it is free, and less than ``bytes``.
    """

    name = "host.disk_full"
    Thresholds = thresholds(share=DISK_FULL.limit, bytes=DISK_FULL_BYTES.limit)

    def find_alerts(self, part: WatchedPart) -> Iterator[Alert]:
        for node, telemetry in part.nodes:
            for labels, free in telemetry.get("hw_disk_free_bytes", part.now):
                mount = labels.get("mount", "")
                total = telemetry.one("hw_disk_total_bytes", part.now, mount=mount)
                share = free.last / total.last if total and total.last > 0 else 0.0
                if share < self.thresholds.share and free.last < self.thresholds.bytes:
                    yield self.alert(
                        host=node.node.host,
                        port=mount,
                        text=f"{mount}: {free.last / 1e9:.1f} GB free ({share:.1%})",
                    )


PARTS = 6
"""How many parts a window has, in each of which the memory must fall: a trend, not one leap."""


class HostMemoryLow(NodeAlertRule):
    """A host is about to run out of memory.

    The next step after this is host.oom_kill.

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


class HostCpuContention(NodeAlertRule):
    """Far more threads compete for the CPUs than usual for the job.

    Other work runs on the host; the ranks there are late to every collective.

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

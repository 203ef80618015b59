"""Rules on GPUs that do nothing for their job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import GpuAlertRule, GpuSeen, WatchedPart
from ray_sentinel.engine.telemetry.gpus import IDLE, UTILISATION, GpuPlace
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.thresholds import GPU_IDLE, GPU_LOADED

VRAM = "hw_gpu_vram_used_bytes"
LAG = 30.0
"""Seconds by which what collectors saw may be old."""


class GpuIdle(GpuAlertRule):
    """GPUs that were assigned to a running job and do nothing.

    A job may be "running" for hours without a GPU: its processes cannot see any, or wait.

    Thresholds: ``seconds`` without work; ``startup_seconds`` that a job may take to begin;
    ``empty_bytes`` of memory below which nothing was loaded onto a GPU.
    """

    name = "gpu.idle"
    Thresholds = thresholds(
        seconds=GPU_IDLE.seconds, startup_seconds=1200.0, empty_bytes=GPU_LOADED.limit
    )

    def jobs(self, view: ClusterView, at_work: Sequence[JobView], now: float) -> Iterator[JobView]:
        for job in view.jobs.values():
            begun = job.training() or now - job.first_seen > self.thresholds.startup_seconds
            if not job.live or not begun or job.protected_phase(now):
                continue
            if now - job.first_seen < self.thresholds.seconds:
                continue
            lately = view.scalars.apart_lately(job, now, self.thresholds.seconds + LAG)
            if not (job.training() and lately):
                yield job

    def read(self, part: WatchedPart, job: JobView) -> Iterator[GpuSeen]:
        for gpu in part.places(job):
            state = "idle" if self._idle(gpu, part.now) else ""
            yield GpuSeen(job.key, gpu.node, gpu.gpu, state=state)

    def judge(
        self, view: ClusterView, job: JobView, seen: Sequence[GpuSeen], now: float
    ) -> Iterator[Alert]:
        idle = [gpu for gpu in seen if gpu.state == "idle"]
        told = all(rank.rank.gpus for rank in job.live)
        # Nobody said which GPUs the job was given: some may be left over by design.
        if idle and (told or len(idle) == len(seen)):
            yield self._alert(view, job, len(seen), idle, now)

    def _idle(self, gpu: GpuPlace, now: float) -> bool:
        series = gpu.telemetry.one(UTILISATION, now, gpu=gpu.gpu)
        if series is None or series.last > IDLE or not series.covers(now, self.thresholds.seconds):
            return False
        return max(series.within(now, self.thresholds.seconds)) <= IDLE

    def _alert(
        self, view: ClusterView, job: JobView, gpus: int, idle: Sequence[GpuSeen], now: float
    ) -> Alert:
        one = idle[0] if len(idle) == 1 else None
        return self.alert(
            job=job.job,
            host=view.host_of(one.node) if one else "",
            gpu=one.gpu if one else "",
            text=f"{len(idle)} of {gpus} GPUs have been idle for "
            f"{self.thresholds.seconds:.0f} s: {self._why(view, job, idle, now)}",
        )

    def _why(self, view: ClusterView, job: JobView, idle: Sequence[GpuSeen], now: float) -> str:
        loaded = [
            series.last > self.thresholds.empty_bytes
            for gpu in idle
            if (series := view.telemetry.of(gpu.node).one(VRAM, now, gpu=gpu.gpu)) is not None
        ]
        moving = job.silence(now) < job.timeout()
        if loaded and not any(loaded):
            if moving:
                return "nothing is loaded onto them; the steps continue elsewhere (on CPUs?)"
            return "nothing is loaded onto them: the processes may not see any GPU"
        if moving:
            return "they hold memory, but the steps continue without them"
        return "they hold memory, but the job waits for something (input, a service)"


class GpuBusyWait(GpuAlertRule):
    """GPUs of a silent job poll for their peers: full utilisation, power near rest.

    GPUs that do not wait while most of the others do are the ones being waited for.

    Thresholds: ``silence_seconds`` of the job; ``share`` of its GPUs that must be waiting.
    """

    name = "gpu.busy_wait"
    Thresholds = thresholds(silence_seconds=10.0, share=0.5)

    def jobs(self, view: ClusterView, at_work: Sequence[JobView], now: float) -> Iterator[JobView]:
        return (job for job in view.jobs.values() if self._is_silent(job, now))

    def _is_silent(self, job: JobView, now: float) -> bool:
        silent = job.silence(now) >= self.thresholds.silence_seconds
        return silent and job.training() and not job.protected_phase(now)

    def read(self, part: WatchedPart, job: JobView) -> Iterator[GpuSeen]:
        for place in part.places(job):
            state, power = part.view.gpu_levels.state(place, part.now)
            yield GpuSeen(job.key, place.node, place.gpu, power or 0.0, state)

    def judge(
        self, view: ClusterView, job: JobView, seen: Sequence[GpuSeen], now: float
    ) -> Iterator[Alert]:
        waiting = [gpu for gpu in seen if gpu.state == "waiting"]
        if len(waiting) < max(2, self.thresholds.share * len(seen)):
            return
        # It may have moved since its GPUs were looked at.
        if not self._is_silent(job, now):
            return
        odd = [gpu for gpu in seen if gpu.state in ("resting", "working")]
        power = sum(gpu.value for gpu in waiting) / len(waiting)
        yield self.alert(
            job=job.job,
            text=f"{len(waiting)} of {len(seen)} GPUs poll for their peers: full utilisation at "
            f"{power:.0f} W",
            since=now - job.silence(now),
        )
        for gpu in odd if len(odd) * 4 <= len(seen) else ():
            what = "idles" if gpu.state == "resting" else "still works"
            yield self.alert(
                job=job.job,
                host=view.host_of(gpu.node),
                gpu=gpu.gpu,
                text=f"{what} at {gpu.value:.0f} W while {len(waiting)} others wait",
                since=now - job.silence(now),
            )

"""gpu.busy_wait: GPUs of a silent job poll for their peers: full utilisation, power near rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alert_rules import GpuAlertRule, GpuSeen, WatchedPart
from ray_sentinel.model.alert import Alert


class GpuBusyWait(GpuAlertRule):
    """GPUs that do not wait while most of the others do are the ones being waited for.

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
            gpu = part.view.gpu_levels.reading(place, part.now)
            yield GpuSeen(job.key, gpu.node, gpu.index, gpu.power or 0.0, gpu.state)

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

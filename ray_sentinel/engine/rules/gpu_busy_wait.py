"""gpu.busy_wait: GPUs of a silent job poll for their peers: full utilisation, power near rest."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import thresholds
from ray_sentinel.engine.telemetry.alerting import AlertRule
from ray_sentinel.engine.telemetry.gpus import GpuReading
from ray_sentinel.model.alert import Alert


class GpuBusyWait(AlertRule):
    """GPUs that do not wait while most of the others do are the ones being waited for.

    Thresholds: ``silence_seconds`` of the job; ``share`` of its GPUs that must be waiting.
    """

    name = "gpu.busy_wait"
    Thresholds = thresholds(silence_seconds=10.0, share=0.5)

    def look(self, view: ClusterView, now: float) -> Iterator[Alert]:
        for job in view.jobs.values():
            silent = job.silence(now) >= self.thresholds.silence_seconds
            if not silent or not job.training() or job.protected_phase(now):
                continue
            gpus = view.gpu_levels.gpus(view.telemetry, job, now)
            waiting = [gpu for gpu in gpus if gpu.state == "waiting"]
            if gpus and len(waiting) >= self.thresholds.share * len(gpus) and len(waiting) > 1:
                yield from self._alerts(view, job, gpus, waiting, now)

    def _alerts(
        self,
        view: ClusterView,
        job: JobView,
        gpus: list[GpuReading],
        waiting: list[GpuReading],
        now: float,
    ) -> Iterator[Alert]:
        odd = [gpu for gpu in gpus if gpu.state in ("resting", "working")]
        power = sum(gpu.power or 0.0 for gpu in waiting) / len(waiting)
        yield self.alert(
            job=job.job,
            text=f"{len(waiting)} of {len(gpus)} GPUs poll for their peers: full utilisation at "
            f"{power:.0f} W",
            since=now - job.silence(now),
        )
        for gpu in odd if len(odd) * 4 <= len(gpus) else ():
            what = "idles" if gpu.state == "resting" else "still works"
            yield self.alert(
                job=job.job,
                host=view.host_of(gpu.node),
                gpu=gpu.index,
                text=f"{what} at {gpu.power or 0.0:.0f} W while {len(waiting)} others wait",
                since=now - job.silence(now),
            )

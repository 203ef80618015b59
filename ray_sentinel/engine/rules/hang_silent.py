"""hang.silent: nothing in the job has moved for longer than it ever does."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.activities import has_nothing_to_do
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ray.waits import explained
from ray_sentinel.engine.rule import Rule
from ray_sentinel.model.incident import EvidenceItem, Finding


class HangSilent(Rule):
    """A suspicion that stacks must confirm: silence alone accuses nobody."""

    name = "hang.silent"

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            silence = job.silence(now)
            late = len(job.live) > 0 and silence > job.timeout() and self._counts(job, now)
            if late and not explained(view, job, now):
                yield Finding(
                    rule=self.name,
                    job=job.job,
                    attempt=job.attempt,
                    kind="unknown",
                    severity="critical",
                    summary=f"{job.job}: no rank has made progress for {silence:.0f} s",
                    evidence=(EvidenceItem(source="progress", text=self._expected(job, silence)),),
                )

    @staticmethod
    def _counts(job: JobView, now: float) -> bool:
        if job.protected_phase(now) or job.paused(now):
            return False
        return not has_nothing_to_do(job)

    @staticmethod
    def _expected(job: JobView, silence: float) -> str:
        pace = job.pace if len(job.pace) else job.gaps
        usual = pace.usual
        unit = "steps take" if len(job.pace) else "usual silence is"
        learned = f"{unit} {usual:.1f} s (median)" if usual is not None else "nothing learned yet"
        return f"silent for {silence:.1f} s; {learned}, timeout {job.timeout():.1f} s"

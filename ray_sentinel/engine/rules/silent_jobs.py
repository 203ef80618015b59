"""Rules on jobs of ranks in which nothing moves."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.activities import all_idle, has_nothing_to_do
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import is_stuck
from ray_sentinel.engine.ray.waits import explained
from ray_sentinel.engine.rule import Rule, Thresholds
from ray_sentinel.model.incident import EvidenceItem, Finding


class HangSilent(Rule):
    """Nothing in the job has moved for longer than it ever does.

    A suspicion that stacks must confirm: silence alone accuses nobody.
    """

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


STALL_TIMEOUTS = 2.0
STILL_SECONDS = 20.0
"""Seconds over which looks must find each rank where it was: a silent evaluation passes the same
line again and again."""


class StallOutsideThresholds(Thresholds, frozen=True, kw_only=True):
    """``seconds``: least silence of the job; ``hang.stall_seconds`` where it is not set."""

    seconds: float | None = None


class StallOutside(Rule):
    """All ranks stand still outside of any collective: they wait for something else.

    Names nobody: what all ranks wait for is a service, a file system or a scheduler, not a
    rank.
    """

    name = "stall.outside"
    Thresholds = StallOutsideThresholds

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            silence = job.silence(now)
            least = self.thresholds.seconds or job.hang.stall_seconds
            if silence < least or silence < STALL_TIMEOUTS * job.timeout():
                continue
            spared = job.protected_phase(now) or job.paused(now)
            spared = spared or explained(view, job, now) is not None
            if not spared and _all_outside(job, min(STILL_SECONDS, least / 2)):
                yield Finding(
                    rule=self.name,
                    job=job.job,
                    attempt=job.attempt,
                    kind="stall",
                    severity="warning",
                    summary=f"all {len(job.live)} ranks of {job.job} wait for something outside "
                    "the job",
                    evidence=(
                        EvidenceItem(
                            source="stacks",
                            text=f"no rank is in a collective, and none has made progress for "
                            f"{silence:.0f} s",
                        ),
                    ),
                )


def _all_outside(job: JobView, still: float) -> bool:
    """Whether every rank was seen, since the job last moved, standing still in a place where it
    waits for no other rank."""
    moved = job.moved_at()
    looks = [view.looks[-1] for view in job.live if view.looks and view.looks[-1].at >= moved]
    if not looks or len(looks) < len(job.live):
        return False
    if all_idle(looks) or any(look.waits_for_others for look in looks):
        return False
    return all(is_stuck(view, moved, still) for view in job.live)

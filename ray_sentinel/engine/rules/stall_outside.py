"""stall.outside: all ranks stand still outside of any collective: they wait for something else."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.activities import all_idle
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import is_stuck
from ray_sentinel.engine.ray.waits import explained
from ray_sentinel.engine.rule import Rule, Thresholds
from ray_sentinel.model.incident import EvidenceItem, Finding

STALL_TIMEOUTS = 2.0
STILL_SECONDS = 20.0
"""Seconds over which looks must find each rank where it was: a silent evaluation passes the same
line again and again."""


class StallOutsideThresholds(Thresholds, frozen=True, kw_only=True):
    """``seconds``: least silence of the job; ``hang.stall_seconds`` where it is not set."""

    seconds: float | None = None


class StallOutside(Rule):
    """Names nobody: what all ranks wait for is a service, a file system or a scheduler, not a
    rank."""

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

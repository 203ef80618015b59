"""rank.blocked: a rank's main thread sits in uninterruptible sleep (state D) and does not move."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Rule, Thresholds
from ray_sentinel.model.incident import EvidenceItem, Finding


class RankBlockedThresholds(Thresholds, frozen=True, kw_only=True):
    """``seconds`` in state D without a break, and least silence of the job."""

    seconds: float = 2.0
    silence_seconds: float = 2.5


class RankBlocked(Rule):
    """Hard evidence: disk sleep of seconds is no disk any more."""

    name = "rank.blocked"
    Thresholds = RankBlockedThresholds

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            blocked = [
                rank
                for rank in job.live
                if rank.held("blocked", now) >= self.thresholds.seconds
                and now - rank.moved_at >= self.thresholds.seconds
            ]
            if not blocked or job.silence(now) < job.brisk(self.thresholds.silence_seconds):
                continue
            if job.protected_phase(now):
                continue
            yield Finding(
                rule=self.name,
                job=job.job,
                attempt=job.attempt,
                kind="kernel-blocked",
                severity="critical",
                summary=f"{job.job}: rank {', '.join(str(r.rank.id.rank) for r in blocked)} "
                f"is blocked in the kernel ({blocked[0].process.wchan or 'state D'})",
                suspects=tuple(rank.rank.id for rank in blocked),
                evidence=tuple(
                    EvidenceItem(
                        source="process",
                        text=f"rank {rank.rank.id.rank}: in state D for "
                        f"{rank.held('blocked', now):.1f} s, in {rank.process.wchan or '?'}",
                        rank=rank.rank.id.rank,
                        weight=6.0,
                    )
                    for rank in blocked
                ),
                hard=True,
                settled=True,
            )

"""rank.blocked: a rank's main thread sits in uninterruptible sleep (state D) and does not move."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Proof, Rule, of_ranks, thresholds
from ray_sentinel.evidence.minority import half
from ray_sentinel.model.incident import Finding

PROOF = Proof(rule="rank.blocked", kind="kernel-blocked", what="is blocked in the kernel (state D)")


class RankBlocked(Rule):
    """Hard evidence: an uninterruptible sleep of many seconds is not normal disk latency.

    Thresholds: ``seconds`` in state D without a break, and least silence of the job.
    """

    name = PROOF.rule
    Thresholds = thresholds(seconds=2.0, silence_seconds=2.5)

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            blocked = [
                rank
                for rank in job.held
                if rank.held("blocked", now) >= self.thresholds.seconds
                and now - rank.moved_at >= self.thresholds.seconds
            ]
            if not blocked or job.silence(now) < job.short_timeout(self.thresholds.silence_seconds):
                continue
            # If most of them are blocked, a file system has gone: that is no rank's fault.
            if job.protected_phase(now) or len(blocked) > half(max(2, len(job.live))):
                continue
            told = [
                (
                    rank,
                    f"in state D for {rank.held('blocked', now):.1f} s, in "
                    f"{rank.process.wchan or '?'}",
                )
                for rank in blocked
            ]
            yield of_ranks(PROOF, job, told)

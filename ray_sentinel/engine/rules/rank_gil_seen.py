"""rank.gil-seen: stacks taken from outside show one rank holding its GIL in one place."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.rule import Rule, Thresholds
from ray_sentinel.model.incident import EvidenceItem, Finding

SPARED = frozenset({"checkpoint", "compile", "startup"})
"""Serialising and compiling keep the GIL for seconds in everyday work."""


class RankGilSeenThresholds(Thresholds, frozen=True, kw_only=True):
    """``seconds`` between two equal looks, and the least silence of the job."""

    seconds: float = 1.0
    silence_seconds: float = 2.0
    running_looks: int = 5
    """Equal looks that it takes where the rank is on a CPU; asleep, two are enough."""


class RankGilSeen(Rule):
    """For ranks without a companion thread: hard evidence once two looks agree."""

    name = "rank.gil-seen"
    Thresholds = RankGilSeenThresholds

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            if not job.training() or job.silence(now) < job.brisk(self.thresholds.silence_seconds):
                continue
            holders = [rank for rank in job.live if self._holds(rank)]
            if holders and len(holders) <= len(job.live) // 2:
                yield self._finding(job, holders, now)

    def _holds(self, rank: RankView) -> bool:
        if rank.process.interpreter in ("runs", "starved"):
            return False
        looks = [look for look in rank.looks if look.at >= rank.advanced_at]
        if not looks or looks[-1].at - looks[0].at < self.thresholds.seconds:
            return False
        if not all(look.holds_gil and look.activity not in SPARED for look in looks):
            return False
        # A loop in Python goes from line to line, and is back in time for a second look or two.
        asleep = any(look.keeps_gil or look.active is False for look in looks)
        enough = asleep or len(looks) >= self.thresholds.running_looks
        return enough and len({look.signature for look in looks}) == 1

    def _finding(self, job: JobView, holders: list[RankView], now: float) -> Finding:
        names = ", ".join(str(rank.rank.id.rank) for rank in holders)
        return Finding(
            rule=self.name,
            job=job.job,
            attempt=job.attempt,
            kind="gil-held",
            severity="critical",
            summary=f"{job.job}: rank {names} holds its GIL in one place",
            suspects=tuple(rank.rank.id for rank in holders),
            evidence=tuple(
                EvidenceItem(
                    source="stacks",
                    text=f"rank {rank.rank.id.rank}: holds the GIL at "
                    f"{rank.looks[-1].signature[-1] if rank.looks[-1].signature else '?'} at every "
                    f"look over {rank.looks[-1].at - rank.looks[0].at:.1f} s",
                    rank=rank.rank.id.rank,
                    weight=6.0,
                )
                for rank in holders
            ),
            hard=True,
            settled=True,
        )

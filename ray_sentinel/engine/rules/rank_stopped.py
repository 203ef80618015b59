"""rank.stopped: a rank is in state T, or its cgroup is frozen, while its peers run."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.rule import Rule, Thresholds
from ray_sentinel.model.incident import EvidenceItem, Finding


class RankStoppedThresholds(Thresholds, frozen=True, kw_only=True):
    """``seconds`` that a rank must have been stopped."""

    seconds: float = 1.0


class RankStopped(Rule):
    """Hard evidence, except where the whole job is stopped: then somebody paused it."""

    name = "rank.stopped"
    Thresholds = RankStoppedThresholds

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            stopped = [rank for rank in job.live if rank.held("stopped", now)]
            long = [
                rank for rank in stopped if rank.held("stopped", now) >= self.thresholds.seconds
            ]
            if long and len(stopped) < len(job.live):
                yield Finding(
                    rule=self.name,
                    job=job.job,
                    attempt=job.attempt,
                    kind="rank-stopped",
                    severity="critical",
                    summary=f"{job.job}: rank {_names(stopped)} stopped (state T)",
                    suspects=tuple(rank.rank.id for rank in stopped),
                    evidence=tuple(_evidence(rank, now) for rank in stopped),
                    hard=True,
                )


def _names(ranks: list[RankView]) -> str:
    return ", ".join(str(rank.rank.id.rank) for rank in ranks)


def _evidence(rank: RankView, now: float) -> EvidenceItem:
    what = "its cgroup is frozen" if rank.process.frozen else "its process is in state T (stopped)"
    return EvidenceItem(
        source="process",
        text=f"rank {rank.rank.id.rank}: {what} since {rank.held('stopped', now):.1f} s",
        rank=rank.rank.id.rank,
        weight=8.0,
    )

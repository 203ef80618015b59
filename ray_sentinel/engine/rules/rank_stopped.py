"""rank.stopped: a signal has stopped a rank, or its cgroup is frozen, while its peers run."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.rule import Proof, Rule, of_ranks, thresholds
from ray_sentinel.model.incident import Finding

PROOF = Proof(
    rule="rank.stopped",
    kind="rank-stopped",
    what="stopped",
    weight=8.0,
    settled=False,
)


class RankStopped(Rule):
    """Hard evidence, except where the whole job is stopped: then somebody paused it.

    Thresholds: ``seconds`` that a rank must have been stopped.
    """

    name = PROOF.rule
    Thresholds = thresholds(seconds=1.0)

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            stopped = [rank for rank in job.held if rank.held("stopped", now)]
            long = [
                rank for rank in stopped if rank.held("stopped", now) >= self.thresholds.seconds
            ]
            if long and len(stopped) < len(job.live):
                yield of_ranks(PROOF, job, [(rank, _describe(rank, now)) for rank in stopped])


def _describe(rank: RankView, now: float) -> str:
    frozen = rank.process.frozen
    stopped = "its process has been stopped by a signal (as kill -STOP sends)"
    what = "its cgroup has been frozen" if frozen else stopped
    return f"{what} for {rank.held('stopped', now):.1f} s"

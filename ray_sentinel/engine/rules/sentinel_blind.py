"""sentinel.blind: a node with ranks is up, but its agent does not report."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.rule import Rule, thresholds
from ray_sentinel.model.incident import EvidenceItem, Finding


class SentinelBlind(Rule):
    """A problem of the sentinel, not of the job: it names nobody, and ends when the agent is back.

    Thresholds: ``seconds`` without a snapshot; an agent that was killed is back in a few.
    """

    name = "sentinel.blind"
    Thresholds = thresholds(seconds=30.0)

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for node in view.nodes.values():
            silence = node.silence(now)
            if node.left_at is not None or not node.alive or silence < self.thresholds.seconds:
                continue
            host = node.node.host
            for job in view.jobs.values():
                blind = sorted(v.rank.id.rank for v in job.live if v.node == node.node.id)
                if not blind:
                    continue
                yield Finding(
                    rule=self.name,
                    job=job.job,
                    attempt=job.attempt,
                    kind="sentinel",
                    severity="warning",
                    summary=f"{host} is not watched: its agent has been silent for "
                    f"{silence:.0f} s, though the node answers",
                    evidence=(
                        EvidenceItem(
                            source="node",
                            text=f"{host}: no snapshot for {silence:.0f} s; nothing is known about "
                            f"{len(blind)} ranks of {job.job}",
                        ),
                    ),
                    hard=True,
                    settled=True,
                    host=host,
                )

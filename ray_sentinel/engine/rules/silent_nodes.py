"""Rules on nodes that no longer report."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView, NodeState
from ray_sentinel.engine.rule import Rule, thresholds
from ray_sentinel.model.incident import EvidenceItem, Finding


class NodeLost(Rule):
    """A node with ranks on it no longer reports, and its raylet does not answer.

    Hard evidence. A node that is or was being drained, or that had no rank, is not reported.
    """

    name = "node.lost"

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for node in view.nodes.values():
            if not self._lost(view, node, now):
                continue
            for job in view.jobs.values():
                # Ranks that ended in order before the node went are not lost with it.
                ranks = [rank for rank in job.ranks.values() if rank.node == node.node.id]
                ranks = [rank for rank in ranks if rank.alive]
                if ranks:
                    names = ", ".join(str(r) for r in sorted(rank.rank.id.rank for rank in ranks))
                    yield Finding(
                        rule=self.name,
                        job=job.job,
                        attempt=job.attempt,
                        kind="node-lost",
                        severity="critical",
                        summary=f"node {node.node.host} is lost, with rank {names} of {job.job}",
                        suspects=tuple(rank.rank.id for rank in ranks),
                        evidence=(EvidenceItem(source="node", text=self._why(node, now)),),
                        hard=True,
                        host=node.node.host,
                    )

    @staticmethod
    def _lost(view: ClusterView, node: NodeState, now: float) -> bool:
        if node.leaving_since is not None or node.seen_at is None:
            return False
        if node.left_at is not None:
            return True
        return node.alive is False and node.silence(now) > view.lost_after(node)

    @staticmethod
    def _why(node: NodeState, now: float) -> str:
        said = f"; Ray: {node.leave_reason}" if node.leave_reason else ""
        probe = "its raylet does not answer" if node.alive is False else "Ray counts it as dead"
        return f"{node.node.host}: no snapshot for {node.silence(now):.1f} s and {probe}{said}"


class SentinelBlind(Rule):
    """A node with ranks is up, but its agent does not report.

    A problem of the sentinel, not of the job: it names nobody, and ends when the agent is back.

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

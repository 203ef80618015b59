"""rank.exited: a rank ended by a signal, an error or in silence while its job went on."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.ray.deaths import Place
from ray_sentinel.engine.rule import Rule, Thresholds
from ray_sentinel.engine.verdicts.exits import (
    ASKED_TO_END,
    describe_exit,
    is_abnormal,
    is_mismatch,
)
from ray_sentinel.engine.verdicts.first_exits import (
    Ends,
    all_killed,
    ended_alone,
    first_causes,
    leavers,
    sent_too_much,
    unannounced,
)
from ray_sentinel.model.identity import RankId
from ray_sentinel.model.incident import EvidenceItem, FaultKind, Finding
from ray_sentinel.model.progress import Exit


class RankExitedThresholds(Thresholds, frozen=True, kw_only=True):
    """``settle_seconds``: how long to collect further exits before the first is blamed."""

    settle_seconds: float = 1.5
    together_seconds: float = 0.2
    """Kills within this many seconds of the first have one common cause from outside."""
    cross_node_seconds: float = 0.1
    """Exits on two nodes that are fewer seconds apart than this have no known order."""
    left_seconds: float = 5.0
    """A rank that left at most this many seconds before its first peer failed may be the cause."""


class RankExited(Rule):
    """Hard evidence: named without waiting for silence."""

    name = "rank.exited"
    Thresholds = RankExitedThresholds

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            exits = unannounced(view, job, job.exits_and_dying(), now)
            if any(view.deaths.is_waiting(_place(exit_), at, now) for at, exit_ in exits):
                continue
            spares = view.deaths.spares
            exits = [(at, e) for at, e in exits if not spares(e.rank.node, e.rank.process)]
            first = next((at for at, exit_ in exits if is_abnormal(exit_)), None)
            if first is None or self._a_node_is_missing(view, job, first, now):
                continue
            finding = self._judge(view, job, exits, now)
            if finding is not None:
                yield finding

    def _judge(self, view: ClusterView, job: JobView, exits: Ends, now: float) -> Finding | None:
        abnormal = [(at, exit_) for at, exit_ in exits if is_abnormal(exit_)]
        if not abnormal or now - abnormal[0][0] < self.thresholds.settle_seconds:
            return None
        if all_killed(job):
            return None
        if told := ended_alone(job, exits, abnormal):
            return self._ended_first(view, job, told, abnormal)
        if self._asked_to_end(exits[0], abnormal[0][0]):
            return None
        limits = self.thresholds
        left = leavers(
            job,
            exits,
            abnormal,
            cross_node_seconds=limits.cross_node_seconds,
            left_seconds=limits.left_seconds,
        )
        if left:
            return self._left(job, left, abnormal)
        first = first_causes(
            abnormal,
            cross_node_seconds=limits.cross_node_seconds,
            together_seconds=limits.together_seconds,
        )
        if first:
            return self._ended_first(view, job, first, abnormal)
        if sender := sent_too_much(job, abnormal):
            return self._unlike_the_others(view, job, sender, abnormal)
        return self._only_echoes(job, abnormal)

    def _ended_first(
        self,
        view: ClusterView,
        job: JobView,
        first: Ends,
        abnormal: Ends,
    ) -> Finding:
        evidence = tuple(
            _item(
                at,
                exit_,
                f"(pid {exit_.rank.process.pid} on {view.host_of(exit_.rank.node)}) "
                + describe_exit(exit_),
                weight=8.0,
            )
            for at, exit_ in first
        ) + self._echoes(abnormal, first)
        killed_by_oom = any(exit_.oom_killed for _, exit_ in first)
        names = ", ".join(str(exit_.rank.id.rank) for _, exit_ in first)
        return self._finding(
            job,
            "oom-killed" if killed_by_oom else "rank-dead",
            f"rank {names} of {job.job} {describe_exit(first[0][1])}",
            suspects=tuple(exit_.rank.id for _, exit_ in first),
            evidence=evidence,
        )

    def _finding(
        self,
        job: JobView,
        kind: FaultKind,
        summary: str,
        *,
        suspects: tuple[RankId, ...] = (),
        evidence: tuple[EvidenceItem, ...],
    ) -> Finding:
        return Finding(
            rule=self.name,
            job=job.job,
            attempt=job.attempt,
            kind=kind,
            severity="critical",
            summary=summary,
            suspects=suspects,
            evidence=evidence,
            hard=True,
            settled=True,
        )

    @staticmethod
    def _echoes(abnormal: Ends, first: Ends) -> tuple[EvidenceItem, ...]:
        begin = first[0][0]
        return tuple(
            _item(at, exit_, f"{describe_exit(exit_)} {at - begin:.1f} s later: an echo")
            for at, exit_ in abnormal
            if (at, exit_) not in first
        )

    def _left(
        self,
        job: JobView,
        left: Ends,
        abnormal: Ends,
    ) -> Finding:
        names = ", ".join(str(exit_.rank.id.rank) for _, exit_ in left)
        evidence = tuple(
            _item(
                at,
                exit_,
                f"{describe_exit(exit_)} while the job continued, and {len(abnormal)} ranks lost a "
                "peer right after it",
                weight=6.0,
            )
            for at, exit_ in left
        )
        return self._finding(
            job,
            "rank-dead",
            f"rank {names} of {job.job} left while the others continued",
            suspects=tuple(exit_.rank.id for _, exit_ in left),
            evidence=evidence + self._echoes(abnormal, left),
        )

    def _unlike_the_others(
        self, view: ClusterView, job: JobView, sender: RankView, abnormal: Ends
    ) -> Finding:
        number, others = sender.rank.id.rank, len(job.ranks) - 1
        what = f"sent each of {others} other ranks more than it had asked for"
        where = f"(pid {sender.rank.process.pid} on {view.host_of(sender.node)})"
        item = EvidenceItem(
            source="exit", text=f"rank {number} {where} {what}", rank=number, weight=8.0
        )
        return self._finding(
            job,
            "collective-mismatch",
            f"rank {number} of {job.job} {what}",
            suspects=(sender.rank.id,),
            evidence=(
                item,
                *(_item(at, exit_, describe_exit(exit_)) for at, exit_ in abnormal),
            ),
        )

    def _only_echoes(self, job: JobView, abnormal: Ends) -> Finding:
        mismatch = any(is_mismatch(exit_) for _, exit_ in abnormal)
        summary = (
            "ranks called different collectives, or used different sizes; it is unknown whose call "
            "was wrong"
            if mismatch
            else f"{len(abnormal)} ranks lost a peer and ended; it is unknown which one"
        )
        return self._finding(
            job,
            "collective-mismatch" if mismatch else "unknown",
            f"{job.job}: {summary}",
            evidence=tuple(_item(at, exit_, describe_exit(exit_)) for at, exit_ in abnormal),
        )

    def _asked_to_end(self, first: tuple[float, Exit], first_abnormal: float) -> bool:
        """Whether a launcher or a person ended the job: the first exit of all then follows such a
        signal."""
        at, exit_ = first
        return (
            exit_.signal in ASKED_TO_END and at <= first_abnormal + self.thresholds.settle_seconds
        )

    @staticmethod
    def _a_node_is_missing(view: ClusterView, job: JobView, first: float, now: float) -> bool:
        """Whether a node with ranks of the job is silent, or has reported nothing since the first
        exit: its ranks may be the ones that went first."""
        for rank in job.ranks.values():
            if (node := view.nodes.get(rank.node)) is None:
                continue
            late, lost = 1.5 * view.report_interval(node) + 0.5, view.lost_after(node) + 4.0
            heard_at = node.joined_at if node.seen_at is None else node.seen_at
            if node.silence(now) < lost and (heard_at < first or node.silence(now) > late):
                return True
        return False


def _place(exit_: Exit) -> Place:
    return exit_.rank.node, exit_.rank.process.pid


def _item(at: float, exit_: Exit, text: str, weight: float = 0.0) -> EvidenceItem:
    number = exit_.rank.id.rank
    return EvidenceItem(
        source="exit", text=f"rank {number} {text}", rank=number, weight=weight, at=at
    )

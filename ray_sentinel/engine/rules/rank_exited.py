"""rank.exited: a rank ended by a signal, an error or in silence while its job went on."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.exits import (
    ASKED_TO_END,
    KILLED,
    describe_exit,
    has_final_words,
    is_abnormal,
    is_cause,
    is_echo,
    is_mismatch,
    is_unclear,
    violence,
)
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.rule import Rule, Thresholds
from ray_sentinel.model.identity import RankId
from ray_sentinel.model.incident import EvidenceItem, FaultKind, Finding
from ray_sentinel.model.progress import Exit


class RankExitedThresholds(Thresholds, frozen=True, kw_only=True):
    """``settle_seconds``: how long to collect further exits before the first is blamed."""

    settle_seconds: float = 1.5
    together_seconds: float = 0.2
    """Kills within so short a time of the first have one cause from outside."""
    cross_node_seconds: float = 0.1
    """Orders closer than this are not read off two clocks."""
    left_seconds: float = 5.0
    """So long before the first of its peers fell, a rank that left may be what they missed."""


ALL_KILLED_WITHIN = 2.0
FEW = 1 / 3
"""Of a job's ranks: so many may be ended by somebody who does not end the job."""


def _gone_at(job: JobView, said_at: float, exit_: Exit) -> float:
    """When a process was gone that had said its last words at ``said_at``; peers see it go then."""
    view = job.ranks.get(exit_.rank.process)
    if view is not None and view.alive:
        return math.inf
    return said_at + (max(0.0, exit_.at - exit_.last_words.time) if exit_.last_words else 0.0)


class RankExited(Rule):
    """Hard evidence: named without waiting for silence."""

    name = "rank.exited"
    Thresholds = RankExitedThresholds

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            exits = job.exits_and_dying()
            if exits and not self._a_node_is_missing(view, job, now):
                finding = self._judge(view, job, exits, now)
                if finding is not None:
                    yield finding

    def _judge(
        self, view: ClusterView, job: JobView, exits: list[tuple[float, Exit]], now: float
    ) -> Finding | None:
        abnormal = [(at, exit_) for at, exit_ in exits if is_abnormal(exit_)]
        if not abnormal or now - abnormal[0][0] < self.thresholds.settle_seconds:
            return None
        if self._all_killed(job):
            return None
        first = self._ended_alone(job, exits, abnormal)
        if not first and self._asked_to_end(exits[0], abnormal[0][0]):
            return None
        if first:
            return self._ended_first(view, job, first, abnormal)
        if leavers := self._leavers(job, exits, abnormal):
            return self._left(job, leavers, abnormal)
        first = self._first_causes(abnormal)
        if not first:
            return self._only_echoes(job, abnormal)
        return self._ended_first(view, job, first, abnormal)

    def _ended_first(
        self,
        view: ClusterView,
        job: JobView,
        first: list[tuple[float, Exit]],
        abnormal: list[tuple[float, Exit]],
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

    def _first_causes(self, abnormal: list[tuple[float, Exit]]) -> list[tuple[float, Exit]]:
        """The exits that are no echo: the first, and what was killed together with it."""
        own = [(at, exit_) for at, exit_ in abnormal if is_cause(exit_)]
        if is_unclear(abnormal[0][1]):
            # Whoever fell into a mismatch first is not thereby its cause, and those that follow
            # are echoes, whatever they say; but what was killed was killed.
            own = [(at, exit_) for at, exit_ in own if violence(exit_) == KILLED]
        if not own:
            return []
        at, first = own[0]
        for when, other in own[1:]:
            # The order on one node is sure; over two nodes, the more violent end came first.
            close = when - at <= self.thresholds.cross_node_seconds
            if close and other.rank.node != first.rank.node and violence(other) > violence(first):
                at, first = when, other
        if violence(first) < KILLED:
            return [(at, first)]
        return [
            (when, other)
            for when, other in own
            if violence(other) == KILLED and abs(when - at) <= self.thresholds.together_seconds
        ]

    @staticmethod
    def _echoes(
        abnormal: list[tuple[float, Exit]], first: list[tuple[float, Exit]]
    ) -> tuple[EvidenceItem, ...]:
        begin = first[0][0]
        return tuple(
            _item(at, exit_, f"{describe_exit(exit_)} {at - begin:.1f} s later: an echo")
            for at, exit_ in abnormal
            if (at, exit_) not in first
        )

    def _leavers(
        self,
        job: JobView,
        exits: list[tuple[float, Exit]],
        abnormal: list[tuple[float, Exit]],
    ) -> list[tuple[float, Exit]]:
        """Ranks that left in peace right before all the others lost a peer: it was them."""
        if any(is_cause(exit_) and has_final_words(exit_) for _, exit_ in abnormal):
            return []
        if any(violence(exit_) == KILLED for _, exit_ in abnormal):
            return []
        begin = abnormal[0][0]
        found = [
            (at, exit_)
            for at, exit_ in exits
            if not is_abnormal(exit_)
            and begin - self.thresholds.left_seconds <= _gone_at(job, at, exit_)
            and at <= begin + self.thresholds.cross_node_seconds
        ]
        few = len(found) < len(abnormal) and len(found) <= len(job.ranks) // 2
        return found if few else []

    def _left(
        self,
        job: JobView,
        leavers: list[tuple[float, Exit]],
        abnormal: list[tuple[float, Exit]],
    ) -> Finding:
        names = ", ".join(str(exit_.rank.id.rank) for _, exit_ in leavers)
        evidence = tuple(
            _item(
                at,
                exit_,
                f"{describe_exit(exit_)} while the job went on, and {len(abnormal)} ranks lost a "
                "peer right after it",
                weight=6.0,
            )
            for at, exit_ in leavers
        )
        return self._finding(
            job,
            "rank-dead",
            f"rank {names} of {job.job} left while the others went on",
            suspects=tuple(exit_.rank.id for _, exit_ in leavers),
            evidence=evidence + self._echoes(abnormal, leavers),
        )

    @staticmethod
    def _all_killed(job: JobView) -> bool:
        """Every rank was killed within a moment: somebody ended the whole job."""
        moments = [at for at, exit_ in job.exits if violence(exit_) == KILLED]
        if any(exit_.oom_killed for _, exit_ in job.exits) or len(moments) < len(job.ranks):
            return False
        return len(moments) > 1 and max(moments) - min(moments) <= ALL_KILLED_WITHIN

    def _only_echoes(self, job: JobView, abnormal: list[tuple[float, Exit]]) -> Finding:
        mismatch = any(is_mismatch(exit_) for _, exit_ in abnormal)
        summary = (
            "ranks were in different collectives, or with other sizes; whose call was wrong cannot "
            "be told"
            if mismatch
            else f"{len(abnormal)} ranks lost a peer and ended; who was lost cannot be told"
        )
        return self._finding(
            job,
            "collective-mismatch" if mismatch else "unknown",
            f"{job.job}: {summary}",
            evidence=tuple(_item(at, exit_, describe_exit(exit_)) for at, exit_ in abnormal),
        )

    def _asked_to_end(self, first: tuple[float, Exit], first_abnormal: float) -> bool:
        """A launcher or a person ended the job: the first exit of all answers such a signal."""
        at, exit_ = first
        return (
            exit_.signal in ASKED_TO_END and at <= first_abnormal + self.thresholds.settle_seconds
        )

    @staticmethod
    def _ended_alone(
        job: JobView, exits: list[tuple[float, Exit]], abnormal: list[tuple[float, Exit]]
    ) -> list[tuple[float, Exit]]:
        """Some of one node's ranks were told to end, and others fell for it: who ends a job, or a
        node, tells all of them."""
        told = [(at, exit_) for at, exit_ in exits if exit_.signal in ASKED_TO_END]
        if not told or exits[0] != told[0] or len(told) > FEW * len(job.ranks):
            return []
        (node, *others) = {exit_.rank.node for _, exit_ in told}
        there = sum(view.rank.node == node for view in job.ranks.values())
        fell = [exit_ for _, exit_ in abnormal if is_echo(exit_)]
        alone = not others and len(told) < there and len(fell) > len(told)
        return told if alone else []

    @staticmethod
    def _a_node_is_missing(view: ClusterView, job: JobView, now: float) -> bool:
        """A node with ranks of the job is silent: its ranks may be the ones that went first."""
        interval = view.config.agent.snapshot_interval
        limit = view.config.coordinator.lost_snapshots * interval + 4.0
        for rank in job.ranks.values():
            node = view.nodes.get(rank.node)
            if node is not None and 1.5 * interval + 0.5 < node.silence(now) < limit:
                return True
        return False


def _item(at: float, exit_: Exit, text: str, weight: float = 0.0) -> EvidenceItem:
    number = exit_.rank.id.rank
    return EvidenceItem(
        source="exit", text=f"rank {number} {text}", rank=number, weight=weight, at=at
    )

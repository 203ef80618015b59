"""Which of a job's exits was the cause: the first, the violent one, the one that left, or none."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView, NodeState
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.verdicts.exits import (
    ASKED_TO_END,
    KILLED,
    final_words,
    has_exception,
    is_cause,
    is_echo,
    is_unclear,
    left_by_itself,
    violence,
    was_overrun,
)
from ray_sentinel.evidence.minority import half, third
from ray_sentinel.model.progress import Exit

# Exits that a node's announced end explains: Ray drains it, or removed it as requested.
#
# Draining a node ends its ranks, by whatever signal, or the machine goes away with them; the job's
# other ranks fail because of it or are ended too. None of these is to blame. A rank that says what
# went wrong with itself, or that ran out of memory, is judged as usual.

NOTICE_SECONDS = 5.0
"""Seconds after its beginning within which the drain of a node is known."""
BEFORE_SECONDS = 1.0
"""Seconds by which the clocks of two nodes may differ: an effect may seem to come before its cause.
"""
FOLLOW_SECONDS = 30.0
"""Seconds after a rank left with its node within which exits of other ranks follow from that."""
QUIET_SECONDS = 3.0
"""Seconds of silence after which a leaving node may be gone."""


def unannounced(view: ClusterView, job: JobView, exits: Ends, now: float) -> Ends:
    """The exits of a job that no announced end of a node explains, in order."""
    spans = [
        (at - BEFORE_SECONDS, at + FOLLOW_SECONDS)
        for at, exit_ in exits
        if _went_with_its_node(view, at, exit_)
    ]
    spans += _gone_unreported(view, job, now)
    return [
        (at, exit_)
        for at, exit_ in exits
        if _of_its_own(exit_) or not any(begin <= at <= end for begin, end in spans)
    ]


def note_departed(view: ClusterView) -> None:
    """Mark the ranks that ended with their nodes as announced."""
    leaving = {key for key, node in view.nodes.items() if node.leaving_since is not None}
    for job in view.jobs.values() if leaving else ():
        job.departed = {
            process
            for process, rank in job.ranks.items()
            if rank.node in leaving
            and rank.ended_at is not None
            and not (rank.exit and _of_its_own(rank.exit))
            and _announced(view.nodes[rank.node], rank.ended_at)
        }


def _gone_unreported(view: ClusterView, job: JobView, now: float) -> Iterator[tuple[float, float]]:
    """When ranks went with a node that reported nothing about it: at the time when the node was
    last heard of."""
    for node_id in {rank.node for rank in job.ranks.values() if rank.exit is None}:
        node = view.nodes.get(node_id)
        if node is None or node.leaving_since is None or node.seen_at is None:
            continue
        quiet = max(QUIET_SECONDS, 2.0 * node.interval)
        if node.left_at is not None or node.silence(now) > quiet:
            yield node.seen_at - BEFORE_SECONDS, (node.left_at or now) + FOLLOW_SECONDS


def _went_with_its_node(view: ClusterView, at: float, exit_: Exit) -> bool:
    return not _of_its_own(exit_) and _announced(view.nodes.get(exit_.rank.node), at)


def _announced(node: NodeState | None, at: float) -> bool:
    since = node.leaving_since if node is not None else None
    return since is not None and at >= since - NOTICE_SECONDS


def _of_its_own(exit_: Exit) -> bool:
    """Whether the rank or the kernel gives a reason other than the end of another rank."""
    return exit_.oom_killed or (has_exception(exit_) and is_cause(exit_))


Ends = list[tuple[float, Exit]]
"""Exits with their times on the coordinator's clock, the earliest first."""

ALL_KILLED_WITHIN = 2.0
"""Seconds within which whoever ends a job signals all of its ranks."""


def all_killed(job: JobView) -> bool:
    """Whether all ranks were killed within a moment, so that somebody ended the whole job."""
    moments = [at for at, exit_ in job.exits if violence(exit_) == KILLED]
    if any(exit_.oom_killed for _, exit_ in job.exits) or len(moments) < len(job.ranks):
        return False
    return len(moments) > 1 and max(moments) - min(moments) <= ALL_KILLED_WITHIN


def ended_alone(job: JobView, exits: Ends, abnormal: Ends) -> Ends:
    """Whether only some of a node's ranks were told to end, and others failed because of it. Ending
    a job or a node is announced to all of its ranks."""
    told = [(at, exit_) for at, exit_ in exits if exit_.signal in ASKED_TO_END]
    if not told or exits[0] != told[0] or len(told) > third(len(job.ranks)):
        return []
    (node, *others) = {exit_.rank.node for _, exit_ in told}
    there = sum(view.rank.node == node for view in job.ranks.values())
    fell = [exit_ for _, exit_ in abnormal if is_echo(exit_)]
    alone = not others and len(told) < there and len(fell) > len(told)
    return told if alone else []


def first_causes(abnormal: Ends, *, cross_node_seconds: float, together_seconds: float) -> Ends:
    """The exits that are not echoes: the first, and those killed together with it."""
    own = [(at, exit_) for at, exit_ in abnormal if is_cause(exit_)]
    if is_unclear(abnormal[0][1]):
        # The first rank with a mismatch is not thereby its cause, and those that follow are echoes,
        # whatever they report; but a killed rank was killed.
        own = [(at, exit_) for at, exit_ in own if violence(exit_) == KILLED]
    if not own:
        return []
    at, first = own[0]
    for when, other in own[1:]:
        # The order on one node is sure; over two nodes, the more violent end came first.
        close = when - at <= cross_node_seconds
        if close and other.rank.node != first.rank.node and violence(other) > violence(first):
            at, first = when, other
    if violence(first) < KILLED:
        return [(at, first)]
    return [
        (when, other)
        for when, other in own
        if violence(other) == KILLED and abs(when - at) <= together_seconds
    ]


def leavers(
    job: JobView, exits: Ends, abnormal: Ends, *, cross_node_seconds: float, left_seconds: float
) -> Ends:
    """Ranks that left by themselves right before all the others lost a peer, and so caused it."""
    abnormal = [(at, exit_) for at, exit_ in abnormal if not left_by_itself(exit_)]
    if not abnormal:
        return []
    if any(is_cause(exit_) and final_words(exit_) for _, exit_ in abnormal):
        return []
    if any(violence(exit_) == KILLED for _, exit_ in abnormal):
        return []
    begin = abnormal[0][0]
    found = [
        (at, exit_)
        for at, exit_ in exits
        if left_by_itself(exit_)
        and begin - left_seconds <= _gone_at(job, at, exit_)
        and at <= begin + cross_node_seconds
    ]
    few = len(found) < len(abnormal) and len(found) <= half(len(job.ranks))
    return found if few else []


def sent_too_much(job: JobView, abnormal: Ends) -> RankView | None:
    """The one rank that did not receive more than it had asked for, while all others did."""
    overrun = {exit_.rank.process for _, exit_ in abnormal if was_overrun(exit_)}
    spared = [view for process, view in job.ranks.items() if process not in overrun]
    everyone = len(job.ranks) >= (job.world_size or 0)
    return spared[0] if everyone and len(spared) == 1 and len(overrun) > 1 else None


def _gone_at(job: JobView, said_at: float, exit_: Exit) -> float:
    """When a process that had said its last words at ``said_at`` was gone; that is what its peers
    see."""
    view = job.ranks.get(exit_.rank.process)
    if view is not None and view.alive:
        return math.inf
    return said_at + (max(0.0, exit_.at - exit_.last_words.time) if exit_.last_words else 0.0)

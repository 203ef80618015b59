"""Exits that a node's announced end explains: Ray drains it, or took it away as it was told to.

Whoever drains a node ends its ranks, by whatever signal, or the machine goes with them; the others
of the job fall over it or are ended too. None of these is to blame. A rank that says what went
wrong with itself, or that ran out of memory, is judged as ever.
"""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView, NodeState
from ray_sentinel.engine.exits import has_own_words, is_cause
from ray_sentinel.engine.first_exits import Ends
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.model.progress import Exit

NOTICE_SECONDS = 5.0
"""A drained node is heard of so long after it began to be, at most."""
BEFORE_SECONDS = 1.0
"""By so much the clocks of two nodes may put what follows before what it follows from."""
FOLLOW_SECONDS = 30.0
"""So long after a rank left with its node, the ends of others follow from that."""
QUIET_SECONDS = 3.0
"""A node to go that has not been heard of for so long may be gone."""


def unannounced(view: ClusterView, job: JobView, exits: Ends, now: float) -> Ends:
    """The exits of a job that no announced end of a node explains, in their order."""
    spans = [
        (at - BEFORE_SECONDS, at + FOLLOW_SECONDS)
        for at, exit_ in exits
        if _went_with_its_node(view, at, exit_)
    ]
    spans += _gone_untold(view, job, now)
    return [
        (at, exit_)
        for at, exit_ in exits
        if _of_its_own(exit_)
        or not (
            _went_with_its_node(view, at, exit_) or any(begin <= at <= end for begin, end in spans)
        )
    ]


def note_departed(view: ClusterView) -> None:
    """Mark the ranks that ended with their nodes, as was announced."""
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


def _gone_untold(view: ClusterView, job: JobView, now: float) -> Iterator[tuple[float, float]]:
    """When ranks went with a node that told nothing of it: since it was last heard of."""
    for node_id in {rank.node for rank in job.ranks.values() if rank.exit is None}:
        node = view.nodes.get(node_id)
        if node is None or node.leaving_since is None or node.seen_at is None:
            continue
        if node.left_at is not None or node.silence(now) > QUIET_SECONDS:
            yield node.seen_at - BEFORE_SECONDS, (node.left_at or now) + FOLLOW_SECONDS


def _went_with_its_node(view: ClusterView, at: float, exit_: Exit) -> bool:
    return not _of_its_own(exit_) and _announced(view.nodes.get(exit_.rank.node), at)


def _announced(node: NodeState | None, at: float) -> bool:
    since = node.leaving_since if node is not None else None
    return since is not None and at >= since - NOTICE_SECONDS


def _of_its_own(exit_: Exit) -> bool:
    """It says itself why it ended, and that was no other rank's end; or the kernel says why."""
    return exit_.oom_killed or (has_own_words(exit_) and is_cause(exit_))

"""Which of a job's exits was the cause: the first, the violent, the one that left, or nobody's."""

from __future__ import annotations

import math

from ray_sentinel.engine.exits import (
    ASKED_TO_END,
    KILLED,
    has_final_words,
    is_cause,
    is_echo,
    is_unclear,
    left_by_itself,
    violence,
    was_overrun,
)
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.model.progress import Exit

Ends = list[tuple[float, Exit]]
"""Exits by the coordinator's time, the earliest first."""

ALL_KILLED_WITHIN = 2.0
"""Seconds: whoever ends a job signals all of its ranks this quickly."""
FEW = 1 / 3
"""Of a job's ranks: so many may be ended by somebody who does not end the job."""


def all_killed(job: JobView) -> bool:
    """Every rank was killed within a moment: somebody ended the whole job."""
    moments = [at for at, exit_ in job.exits if violence(exit_) == KILLED]
    if any(exit_.oom_killed for _, exit_ in job.exits) or len(moments) < len(job.ranks):
        return False
    return len(moments) > 1 and max(moments) - min(moments) <= ALL_KILLED_WITHIN


def ended_alone(job: JobView, exits: Ends, abnormal: Ends) -> Ends:
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


def first_causes(abnormal: Ends, *, cross_node_seconds: float, together_seconds: float) -> Ends:
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
    """Ranks that left by themselves right before all the others lost a peer: it was them."""
    abnormal = [(at, exit_) for at, exit_ in abnormal if not left_by_itself(exit_)]
    if not abnormal:
        return []
    if any(is_cause(exit_) and has_final_words(exit_) for _, exit_ in abnormal):
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
    few = len(found) < len(abnormal) and len(found) <= len(job.ranks) // 2
    return found if few else []


def sent_too_much(job: JobView, abnormal: Ends) -> RankView | None:
    """The one rank that was not sent more than it had asked for, while all others were."""
    overrun = {exit_.rank.process for _, exit_ in abnormal if was_overrun(exit_)}
    spared = [view for process, view in job.ranks.items() if process not in overrun]
    everyone = len(job.ranks) >= (job.world_size or 0)
    return spared[0] if everyone and len(spared) == 1 and len(overrun) > 1 else None


def _gone_at(job: JobView, said_at: float, exit_: Exit) -> float:
    """When a process was gone that had said its last words at ``said_at``; peers see it go then."""
    view = job.ranks.get(exit_.rank.process)
    if view is not None and view.alive:
        return math.inf
    return said_at + (max(0.0, exit_.at - exit_.last_words.time) if exit_.last_words else 0.0)

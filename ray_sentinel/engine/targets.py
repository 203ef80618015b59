"""Whom to look at more closely: the suspects, one waiter of each place, and the rest."""

from __future__ import annotations

from ray_sentinel.engine.actions import Capture
from ray_sentinel.engine.case import Case
from ray_sentinel.model.identity import Rank


def capture_of(case: Case) -> Capture:
    """The capture that a case needs: every live rank is in exactly one of the three lists."""
    suspects = set(case.incident.suspects)
    live = case.job.live
    chosen = [view.rank for view in live if view.rank.id in suspects]
    waiters: dict[tuple[str, ...], Rank] = {}
    for view in live:
        fact = case.latest(view.rank.process)
        if view.rank.id not in suspects and fact is not None:
            waiters.setdefault(fact.signature, view.rank)
    picked = {rank.process for rank in (*chosen, *waiters.values())}
    return Capture(
        incident=case.incident,
        suspects=tuple(chosen),
        waiters=tuple(waiters.values()),
        others=tuple(view.rank for view in live if view.rank.process not in picked),
    )

"""The stacks of an incident, as every report of it shows them."""

from __future__ import annotations

from ray_sentinel.model.incident import Verdict
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.report.words import plain

MOST_FRAMES = 40


def of_culprit(fact: StackFact, verdict: Verdict) -> bool:
    """Whether it is the stack of one whom the verdict names.

    A pid alone tells nobody apart: containers on different nodes give the same ones.
    """
    rank = fact.rank.rank if fact.rank is not None else None
    return any((one.rank, one.pid) == (rank, fact.process.pid) for one in verdict.culprits)


def frames(fact: StackFact) -> list[str]:
    """The telling thread's frames, innermost first, bounded."""
    inner = [plain(frame, 300) for frame in reversed(fact.signature)]
    more = len(inner) - MOST_FRAMES
    return inner[:MOST_FRAMES] + ([f"... {more} outer frames"] if more > 0 else [])

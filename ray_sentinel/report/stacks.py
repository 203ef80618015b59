"""The stacks of an incident, as every report of it shows them."""

from __future__ import annotations

from ray_sentinel.model.incident import Culprit, Verdict
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.text import one_line

MOST_FRAMES = 40
"""Most frames of a stack, the innermost first."""


def of_culprit(fact: StackFact, verdict: Verdict) -> bool:
    """Whether it is the stack of a process that the verdict names."""
    return _named(fact, verdict) is not None


def stack_name(fact: StackFact, verdict: Verdict) -> str:
    """Whose stack it is: "rank 3, pid 42", "ranks 0-2, 5", "Rollout 2, pid 42"; "pid 42 on node1"
    if it belongs to no rank and its process has no name."""
    pid = f"pid {fact.process.pid}"
    if fact.alike > 1:
        return f"ranks {fact.alike_ranks}"
    if fact.rank is not None:
        return f"rank {fact.rank.rank}, {pid}"
    culprit = _named(fact, verdict)
    return (
        f"{one_line(culprit.label)}, {pid}"
        if culprit
        else f"{pid} on {one_line(fact.process.host)}"
    )


def _named(fact: StackFact, verdict: Verdict) -> Culprit | None:
    """A pid alone does not identify a process: containers on different nodes give the same ones."""
    if fact.rank is not None:
        key = (fact.rank.rank, fact.process.pid)
        return next((one for one in verdict.culprits if (one.rank, one.pid) == key), None)
    where = (fact.process.host, fact.process.pid)
    return next((c for c in verdict.culprits if (c.host, c.pid) == where), None)


def frames(fact: StackFact) -> list[str]:
    """The informative thread's frames, innermost first, bounded."""
    inner = [one_line(frame, 300) for frame in reversed(fact.signature)]
    more = len(inner) - MOST_FRAMES
    return inner[:MOST_FRAMES] + ([f"... {more} outer frames"] if more > 0 else [])

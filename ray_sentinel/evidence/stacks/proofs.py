"""Verdicts that need no comparison: a process stopped, gone, blocked, or keeping the GIL."""

from __future__ import annotations

from ray_sentinel.evidence.stacks.context import RuleAnswer, StacksContext, half, wait_sentence
from ray_sentinel.evidence.stacks.readers.problems import process_gone
from ray_sentinel.evidence.stacks.tree import who
from ray_sentinel.model.stacks import StackFact


def stopped(view: StacksContext) -> RuleAnswer | None:
    """Processes that a signal has stopped; if all are, the job is paused."""
    # "t" is a debugger's, perhaps only for a moment; "T" is a signal's.
    found = [f for f in view.facts if f.state == "T" or (f.state == "t" and view.still(f))]
    if not found:
        return None
    if len(found) == len(view.facts) and len(found) > 1:
        reason = "all processes are stopped by a signal: the job is paused"
        return RuleAnswer(kind="paused", confidence=0.7, reasons=(reason,))
    if len(found) > half(view):
        return None
    reasons = tuple(f"{who([fact])} is stopped by a signal (state {fact.state})" for fact in found)
    return RuleAnswer(kind="rank-stopped", confidence=0.9, culprits=tuple(found), reasons=reasons)


def gil(view: StacksContext) -> RuleAnswer | None:
    """Processes with a thread that keeps the GIL without running Python."""
    found = [fact for fact in view.elsewhere + view.doubtful if fact.keeps_gil]
    if not found or len(found) > max(1, half(view)):
        return None
    # A single look at a thread that may be about to release the GIL is no proof.
    sure = [f for f in found if view.still(f) or (_asleep(f) and (f.gil_waiters or view.waiting))]
    if not sure:
        return None
    twice = all(view.still(fact) for fact in sure)
    reasons = tuple(
        f"{who([fact])} keeps the GIL while it runs no Python ({fact.label})"
        + (f"; {fact.gil_waiters} of its threads wait for the GIL" if fact.gil_waiters else "")
        for fact in sure
    )
    return RuleAnswer(
        kind="gil-held",
        confidence=0.85 if twice else 0.7,
        culprits=tuple(sure),
        reasons=reasons,
    )


def _asleep(fact: StackFact) -> bool:
    """Whether the informative thread is off the CPU: a running one may release the GIL in a
    moment."""
    if fact.active is not None:
        return not fact.active
    return fact.activity in ("sleep", "lock-wait", "input-wait", "storage-wait", "network-wait")


def blocked(view: StacksContext) -> RuleAnswer | None:
    """Processes that are blocked in the kernel (state D) and have not moved."""
    found = [fact for fact in view.facts if fact.state == "D" and not fact.waits_for_others]
    if not found or len(found) > max(1, half(view)) or any(view.moved(f) for f in found):
        return None
    reasons = tuple(
        f"{who([fact])} is blocked in the kernel (state D"
        + (f", in {fact.signature[-1]}" if fact.tool == "kernel" and fact.signature else "")
        + f"): {fact.label or 'the reason is not known'}"
        for fact in found
    )
    return RuleAnswer(
        kind="kernel-blocked",
        confidence=0.85 if all(view.still(fact) for fact in found) else 0.7,
        culprits=tuple(found),
        reasons=reasons,
    )


def gone(view: StacksContext) -> RuleAnswer | None:
    """Processes that had ended when they were looked at, while others wait."""
    found = [fact for fact in view.unread if process_gone(fact.error)]
    if not found or len(found) > half(view) or not view.waiting or view.elsewhere:
        return None
    reasons = tuple(f"{who([fact])}: the process was gone" for fact in found)
    return RuleAnswer(
        kind="rank-dead",
        confidence=0.6,
        culprits=tuple(found),
        reasons=(wait_sentence(view), *reasons),
    )

"""Rules for sets in which everybody waits in some collective."""

from __future__ import annotations

from collections import Counter

from ray_sentinel.evidence.stacks.context import (
    RuleAnswer,
    StacksContext,
    collectives,
    places,
    wait_sentence,
)
from ray_sentinel.evidence.stacks.tree import place_of, who
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.stacks import StackFact

TRANSFERS = frozenset({"send", "recv", "send_recv"})
"""Operations between two ranks: the stages of a pipeline wait in different ones."""


ROOTED = frozenset({"broadcast", "scatter", "gather", "reduce"})
"""Collectives in which one rank does something different from the others."""


def other_collective(view: StacksContext) -> RuleAnswer | None:
    """All wait for others, but one of them in another collective than the rest."""
    if len(view.waiting) < 3 or view.elsewhere or view.doubtful:
        return None
    if not all(fact.signature for fact in view.waiting):
        return None  # the place is not known of those whose device alone was seen
    operations = Counter(fact.operation for fact in view.waiting)
    by_place = Counter(map(_collective_place, view.waiting))
    if len(by_place) < 2:
        return None
    if TRANSFERS & set(operations):
        return RuleAnswer(
            kind="unknown",
            confidence=0.2,
            reasons=(
                wait_sentence(view),
                "transfers between single ranks are among them (a pipeline): from the stacks alone "
                "it cannot be told who is waited for; the flight recorder can",
            ),
        )
    (main, count), *rest = by_place.most_common()
    lone = [place for place, size in rest if size == 1]
    if 2 * count <= len(view.waiting) or len(lone) < len(rest) or view.missing or view.unread:
        return RuleAnswer(
            kind="collective-mismatch" if len(operations) > 1 else "unknown",
            confidence=0.3,
            reasons=(
                wait_sentence(view),
                "they wait in different collectives: " + collectives(view),
            ),
        )
    culprits = tuple(f for f in view.waiting if _collective_place(f) in lone)
    if len(culprits) > 1:
        # One of them may wait for the other, in a group of their own.
        return RuleAnswer(
            kind="collective-mismatch",
            confidence=0.3,
            reasons=(
                wait_sentence(view),
                f"{who(culprits)} wait in collectives in which nobody else is: which of them is "
                "wrong cannot be told from stacks; the flight recorder can",
            ),
        )
    (culprit,) = culprits
    confidence = 0.6 if culprit.operation != main[0] else 0.5
    return RuleAnswer(
        kind="collective-mismatch",
        confidence=round(confidence + 0.1 * view.still(culprit), 2),
        culprits=culprits,
        reasons=(
            wait_sentence(view),
            f"{who(culprits)} waits in {culprit.operation or 'a collective'} at "
            f"{place_of(culprit)}, where nobody else is",
        ),
    )


def _collective_place(fact: StackFact) -> tuple[str, tuple[str, ...]]:
    """What must be equal for ranks that are in one collective: its name, and where it was called.

    The root of a broadcast, a scatter or a gather comes to it by another way than the others.
    """
    return fact.operation, () if fact.operation in ROOTED else fact.signature


def left_the_crowd(view: StacksContext) -> RuleAnswer | None:
    """Most are at one place where they may be waiting for others, and a few wait in a collective.

    Stacks look like this if the backward pass hides the collective that most of the ranks are in:
    had the few joined it, it would have ended. Only if no rank is active.
    """
    few, crowd = view.waiting, view.doubtful
    if not few or view.elsewhere or view.unread or len(crowd) < max(2, 2 * len(few)):
        return None
    if len({fact.signature for fact in crowd}) > 1 or any(fact.active for fact in crowd):
        return None
    if not all(map(view.still, few + crowd)):
        return None
    return RuleAnswer(
        kind="collective-mismatch",
        confidence=0.5,
        culprits=few,
        reasons=(
            f"{len(crowd)} of {len(view.facts)} stand in one place: {places(crowd)}",
            *(f"{who([fact])} waits in {fact.operation or 'a collective'} at {place_of(fact)}"
              for fact in few),
        ),
    )  # fmt: skip


def aborting(view: StacksContext) -> RuleAnswer | None:
    """Communicators are being aborted, and the aborts do not end: nobody's own fault shows here."""
    found = [fact for fact in view.facts if fact.aborts and not view.moved(fact)]
    if not found or view.elsewhere:
        return None
    if not all(map(view.still, found)) and len(found) < len(view.facts):
        return None  # seen once: the others may still be told apart
    return RuleAnswer(
        kind="lock-deadlock",
        confidence=0.5 if all(map(view.still, found)) else 0.35,
        reasons=(
            f"{who(found)} in ncclCommAbort: the abort of a communicator does not end, as where it "
            "waits for kernels of that communicator, or for a lock that the aborting thread's own "
            "process holds",
            "an abort follows from an error or a time-out before it: the watchdog's lines in the "
            "logs, and the flight recorder, tell who was waited for then",
        ),
    )


def all_wait(view: StacksContext) -> RuleAnswer | None:
    """Everybody waits for somebody, so the cause is not in these stacks."""
    if not view.waiting or view.elsewhere or len(view.waiting) <= len(view.doubtful):
        return None
    reasons = [wait_sentence(view)]
    if view.missing or view.unread:
        absent = [f"rank {rank}" for rank in view.missing[:10]] + [who([f]) for f in view.unread]
        reasons.append("there are no stacks of " + ", ".join(absent[:20]))
    reasons.append(
        "nobody is elsewhere: look at ranks that are not here, at the devices, at the network"
    )
    kind: FaultKind = "stall" if len(view.facts) > 1 else "unknown"
    return RuleAnswer(kind=kind, confidence=0.4, reasons=tuple(reasons))

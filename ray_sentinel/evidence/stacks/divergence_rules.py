"""Rules for sets in which some wait for ranks, or for a device, and others are elsewhere."""

from __future__ import annotations

from ray_sentinel.evidence.stacks.classify import is_collective_kernel
from ray_sentinel.evidence.stacks.context import (
    RuleAnswer,
    StacksContext,
    apart_sentence,
    common_kind,
    fault_kind,
    half,
    places,
    wait_sentence,
)
from ray_sentinel.evidence.stacks.tree import who
from ray_sentinel.model.stacks import StackFact


def not_waiting(view: StacksContext) -> RuleAnswer | None:
    """Some wait for others, and some are elsewhere: those are waited for."""
    if not view.waiting or not view.elsewhere:
        return None
    apart = view.elsewhere
    if len(apart) > half(view):
        return RuleAnswer(
            kind="unknown",
            confidence=0.3,
            reasons=(
                wait_sentence(view),
                f"but most are elsewhere: {places(apart)}; who is waited for cannot be told",
            ),
        )
    if _two_halves(view):
        return RuleAnswer(
            kind="unknown",
            confidence=0.3,
            reasons=(
                wait_sentence(view),
                f"the other half stand together elsewhere: {places(apart)}; which half is waited "
                "for cannot be told from stacks",
            ),
        )
    going_on = [fact for fact in view.waiting if view.moved(fact)]
    if 2 * len(going_on) > len(view.waiting):
        return RuleAnswer(
            kind="slow" if all(map(view.moved, apart)) else "unknown",
            confidence=0.3,
            reasons=("those in collectives moved between the looks: they do not hang",),
        )
    still = tuple(fact for fact in apart if not view.moved(fact))
    culprits = still or apart
    kinds = tuple(fault_kind(f, view.movements.get(f.process, "unknown")) for f in culprits)
    known = all(fact.waits_for_others is False for fact in culprits)
    confidence = (0.75 if known else 0.6) + (0.1 if all(map(view.still, culprits)) else 0.0)
    confidence -= 0.15 * (2 * len(culprits) > len(view.waiting)) + 0.1 * (not still)
    reasons = [wait_sentence(view)]
    reasons += [apart_sentence(view, fact) for fact in culprits]
    if len(culprits) < len(apart):
        rest = [fact for fact in apart if fact not in culprits]
        reasons.append(f"{who(rest)}: elsewhere too, but moved between the looks: not stuck")
    return RuleAnswer(
        kind=common_kind(kinds),
        confidence=round(confidence, 2),
        culprits=culprits,
        reasons=tuple(reasons),
        kinds=kinds,
    )


def _two_halves(view: StacksContext) -> bool:
    """Whether as many are together at one other place as are waiting: two groups of a job, say,
    each at its own work, or a host's ranks that all wait for the same thing."""
    apart = view.elsewhere
    together = len({fact.signature for fact in apart}) == 1 and len(apart) > 1
    return together and 2 * len(apart) >= len(view.facts)


def beside_doubtful(view: StacksContext) -> RuleAnswer | None:
    """Nobody is known to wait, most may be waiting, and the others are known to be elsewhere.

    Stacks look like this where the device or the backward pass hides the collective.
    """
    apart = view.elsewhere
    if view.waiting or not apart or len(apart) > min(len(view.doubtful), half(view)):
        return None
    if _two_halves(view):
        return None
    if any(fact.waits_for_others is None for fact in apart) or any(map(view.moved, view.doubtful)):
        return None
    culprits = tuple(fact for fact in apart if not view.moved(fact))
    if not culprits:
        return None
    kinds = tuple(fault_kind(f, view.movements.get(f.process, "unknown")) for f in culprits)
    twice = all(map(view.still, culprits + view.doubtful))
    return RuleAnswer(
        kind=common_kind(kinds),
        confidence=0.6 if twice else 0.5,
        culprits=culprits,
        reasons=(
            f"{len(view.doubtful)} of {len(view.facts)} may wait for others: "
            + places(view.doubtful),
            *(apart_sentence(view, fact) for fact in culprits),
        ),
        kinds=kinds,
    )


def device(view: StacksContext) -> RuleAnswer | None:
    """All wait, and few devices have other kernels than the rest: these compute, or do nothing."""
    listed = [fact for fact in view.waiting + view.doubtful if fact.kernels_listed]
    computing = [f for f in listed if not all(map(is_collective_kernel, f.kernels))]
    waiting = [f for f in listed if f.kernels and f not in computing]
    apart = computing or [fact for fact in listed if not fact.kernels]
    if not apart or len(apart) >= len(waiting) or len(apart) > half(view):
        return None
    reasons = tuple(
        f"{who([fact])}: on its device "
        + (f"runs {_other_kernel(fact)}" if fact.kernels else "no kernel runs")
        + ", while the others' devices wait in a collective"
        for fact in apart
    )
    return RuleAnswer(
        kind="device-stuck",
        confidence=0.65 if computing else 0.5,
        culprits=tuple(apart),
        reasons=(wait_sentence(view), *reasons),
    )


def _other_kernel(fact: StackFact) -> str:
    return next(name for name in fact.kernels if not is_collective_kernel(name))[:120]


def doubtful(view: StacksContext) -> RuleAnswer | None:
    """Some wait for others; for a few it is unknown whether they wait."""
    few = view.doubtful
    if not view.waiting or not few or 2 * len(few) >= len(view.waiting) + len(few):
        return None
    signatures = {fact.signature for fact in few}
    if len(signatures) > 1 and len(few) > 2:
        return None
    kinds = tuple(fault_kind(f, view.movements.get(f.process, "unknown")) for f in few)
    confidence = 0.5 + (0.1 if all(map(view.still, few)) else 0.0)
    return RuleAnswer(
        kind=common_kind(kinds),
        confidence=confidence,
        culprits=few,
        reasons=(wait_sentence(view), *(apart_sentence(view, fact) for fact in few)),
        kinds=kinds,
    )

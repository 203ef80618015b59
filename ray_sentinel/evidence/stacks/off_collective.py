"""Rules for sets in which nobody is seen waiting for ranks: the frames may be in no table."""

from __future__ import annotations

from collections import Counter

from ray_sentinel.evidence.minority import at_most_a_third
from ray_sentinel.evidence.stacks.compare import function_of
from ray_sentinel.evidence.stacks.context import (
    RuleAnswer,
    StacksContext,
    apart_sentence,
    common_kind,
    fault_kind,
)
from ray_sentinel.evidence.stacks.tree import place_of
from ray_sentinel.model.stacks import StackFact


def same_outside(view: StacksContext) -> RuleAnswer | None:
    """All are at the same place outside any collective."""
    if len(view.facts) < 2 or view.waiting or view.unread:
        return None
    if len({(fact.activity, fact.signature) for fact in view.facts}) > 1:
        activities = {fact.activity for fact in view.facts}
        if len(activities) > 1 or activities & {"unknown", "compute", "device-wait", "idle"}:
            return None
        if any(fact.waits_for_others is None for fact in view.facts):
            return None  # a futex, say: some may wait in it for a lock, others for ranks
    if any(view.moved(fact) for fact in view.facts):
        return RuleAnswer(
            kind="slow",
            confidence=0.3,
            reasons=("all are at the same place and moved between the looks: nothing hangs",),
        )
    fact = view.facts[0]
    outside = fact.activity in ("input-wait", "storage-wait", "network-wait", "checkpoint")
    return RuleAnswer(
        kind="stall" if outside or all(map(view.still, view.facts)) else "unknown",
        confidence=0.5 if outside else 0.3,
        reasons=(
            f"all {len(view.facts)} are at the same place, and nobody is apart: "
            f"{fact.label or place_of(fact)}",
        ),
    )


def outlier(view: StacksContext) -> RuleAnswer | None:
    """No table knows where they are, but most are at one place and a few are not."""
    facts = [fact for fact in view.facts if fact.signature]
    if len(facts) < 3 or view.waiting:
        return None
    for place in (_exact, _functions, _activity):
        (main, count), *_ = Counter(map(place, facts)).most_common(1)
        apart = [fact for fact in facts if place(fact) != main]
        if not apart or not at_most_a_third(len(apart), len(facts)):
            continue
        crowd = next(fact for fact in facts if place(fact) == main)
        members = [fact for fact in facts if place(fact) == main]
        if crowd.waits_for_others is False or any(map(view.moved, members)):
            return None
        if any(map(view.moved, apart)):
            return None
        kinds = tuple(fault_kind(f, view.movements.get(f.process, "unknown")) for f in apart)
        twice = all(map(view.still, apart)) and all(map(view.still, members))
        return RuleAnswer(
            kind=common_kind(kinds),
            confidence=0.55 if twice else 0.45,
            culprits=tuple(apart),
            reasons=(
                f"{count} of {len(facts)} are at one place: {crowd.label or place_of(crowd)}",
                *(apart_sentence(view, fact) for fact in apart),
                "whether the others wait is not known from their frames: it only stands apart",
            ),
            kinds=kinds,
        )
    return None


def alone(view: StacksContext) -> RuleAnswer | None:
    """There is only one process, and none to compare it with."""
    if len(view.facts) != 1:
        return None
    (fact,) = view.facts
    kind = fault_kind(fact, view.movements.get(fact.process, "unknown"))
    return RuleAnswer(
        kind="unknown" if fact.waits_for_others or fact.activity == "unknown" else kind,
        confidence=0.2,
        reasons=(
            f"only one process was seen: {apart_sentence(view, fact)}",
            "with nobody to compare it with, it cannot be told whether others wait for it",
        ),
    )


def _exact(fact: StackFact) -> object:
    return fact.signature


def _functions(fact: StackFact) -> object:
    return tuple(map(function_of, fact.signature))


def _activity(fact: StackFact) -> object:
    return _functions(fact) if fact.activity == "unknown" else fact.activity

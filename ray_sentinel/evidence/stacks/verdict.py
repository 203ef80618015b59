"""Who holds the others up, judged from where the processes of one job stand.

Every rule answers with a ``Judgement`` or with None; ``judge`` asks them in the order of their
strength. No rule names more than half of the processes, and none names a process that is known to
wait for others, but where its collective is another one than everybody else's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ray_sentinel.evidence.stacks import proofs
from ray_sentinel.evidence.stacks.classify import is_collective_kernel
from ray_sentinel.evidence.stacks.problems import process_gone
from ray_sentinel.evidence.stacks.scene import (
    Judgement,
    Scene,
    apart_sentence,
    collectives,
    common_kind,
    fault_kind,
    half,
    places,
    wait_sentence,
)
from ray_sentinel.evidence.stacks.tree import place_of, who
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.stacks import StackFact

TRANSFERS = frozenset({"send", "recv", "send_recv"})
"""Operations between two ranks: a pipeline's stages wait in different ones."""


ROOTED = frozenset({"broadcast", "scatter", "gather", "reduce"})
"""Collectives in which one rank does something else than the others."""


def judge(view: Scene) -> Judgement:
    """The first rule that has an answer; "unknown" is one."""
    for rule in _RULES:
        if answer := rule(view):
            return answer
    return Judgement(
        kind="unknown",
        confidence=0.1,
        reasons=("the stacks do not set anybody apart: who holds the others up cannot be told",),
    )


def _nothing(view: Scene) -> Judgement | None:
    if any(fact.signature or fact.state or process_gone(fact.error) for fact in view.facts):
        return None
    reason = "no stack could be read" if view.facts else "there are no stacks of ranks"
    return Judgement(kind="unknown", confidence=0.0, reasons=(reason,))


def _not_waiting(view: Scene) -> Judgement | None:
    """Some wait for others, and some are elsewhere: those are waited for."""
    if not view.waiting or not view.elsewhere:
        return None
    apart = view.elsewhere
    if len(apart) > half(view):
        return Judgement(
            kind="unknown",
            confidence=0.3,
            reasons=(
                wait_sentence(view),
                f"but most are elsewhere: {places(apart)}; who is waited for cannot be told",
            ),
        )
    going_on = [fact for fact in view.waiting if view.moved(fact)]
    if 2 * len(going_on) > len(view.waiting):
        return Judgement(
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
    return Judgement(
        kind=common_kind(kinds),
        confidence=round(confidence, 2),
        culprits=culprits,
        reasons=tuple(reasons),
        kinds=kinds,
    )


def _beside_doubtful(view: Scene) -> Judgement | None:
    """Nobody is known to wait, but most are where they may, and the rest is known to be elsewhere.

    So it looks where the device or the backward pass hides the collective.
    """
    apart = view.elsewhere
    if view.waiting or not apart or len(apart) > min(len(view.doubtful), half(view)):
        return None
    if any(fact.waits_for_others is None for fact in apart) or any(map(view.moved, view.doubtful)):
        return None
    culprits = tuple(fact for fact in apart if not view.moved(fact))
    if not culprits:
        return None
    kinds = tuple(fault_kind(f, view.movements.get(f.process, "unknown")) for f in culprits)
    twice = all(map(view.still, culprits + view.doubtful))
    return Judgement(
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


def _device(view: Scene) -> Judgement | None:
    """All wait, and the lists of kernels set a device apart: it computes, or does nothing."""
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
    return Judgement(
        kind="device-stuck",
        confidence=0.65 if computing else 0.5,
        culprits=tuple(apart),
        reasons=(wait_sentence(view), *reasons),
    )


def _other_kernel(fact: StackFact) -> str:
    return next(name for name in fact.kernels if not is_collective_kernel(name))[:120]


def _doubtful(view: Scene) -> Judgement | None:
    """Some wait for others; a few are where it cannot be told whether they wait."""
    few = view.doubtful
    if not view.waiting or not few or 2 * len(few) >= len(view.waiting) + len(few):
        return None
    places = {fact.signature for fact in few}
    if len(places) > 1 and len(few) > 2:
        return None
    kinds = tuple(fault_kind(f, view.movements.get(f.process, "unknown")) for f in few)
    confidence = 0.5 + (0.1 if all(map(view.still, few)) else 0.0)
    return Judgement(
        kind=common_kind(kinds),
        confidence=confidence,
        culprits=few,
        reasons=(wait_sentence(view), *(apart_sentence(view, fact) for fact in few)),
        kinds=kinds,
    )


def _other_collective(view: Scene) -> Judgement | None:
    """All wait for others, but one of them in another collective than the rest."""
    if len(view.waiting) < 3 or view.elsewhere or view.doubtful:
        return None
    operations = Counter(fact.operation for fact in view.waiting)
    by_place = Counter(map(_collective_place, view.waiting))
    if len(by_place) < 2:
        return None
    if TRANSFERS & set(operations):
        return Judgement(
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
        return Judgement(
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
        return Judgement(
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
    return Judgement(
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


def _left_the_crowd(view: Scene) -> Judgement | None:
    """Most stand in one place where they may wait for others, and a few wait in a collective.

    So it looks when the backward pass hides the collective that all are in, but the few: had they
    done their part in it, it would have ended. Only where nobody does anything.
    """
    few, crowd = view.waiting, view.doubtful
    if not few or view.elsewhere or view.unread or len(crowd) < max(2, 2 * len(few)):
        return None
    if len({fact.signature for fact in crowd}) > 1 or any(fact.active for fact in crowd):
        return None
    if not all(map(view.still, few + crowd)):
        return None
    return Judgement(
        kind="collective-mismatch",
        confidence=0.5,
        culprits=few,
        reasons=(
            f"{len(crowd)} of {len(view.facts)} stand in one place: {places(crowd)}",
            *(f"{who([fact])} waits in {fact.operation or 'a collective'} at {place_of(fact)}"
              for fact in few),
        ),
    )  # fmt: skip


def _all_wait(view: Scene) -> Judgement | None:
    """Everybody waits for somebody: the cause is not in these stacks."""
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
    return Judgement(kind=kind, confidence=0.4, reasons=tuple(reasons))


def _same_outside(view: Scene) -> Judgement | None:
    """All stand at the same place outside of any collective."""
    if len(view.facts) < 2 or view.waiting or view.unread:
        return None
    if len({(fact.activity, fact.signature) for fact in view.facts}) > 1:
        activities = {fact.activity for fact in view.facts}
        if len(activities) > 1 or activities & {"unknown", "compute", "device-wait", "idle"}:
            return None
    if any(view.moved(fact) for fact in view.facts):
        return Judgement(
            kind="slow",
            confidence=0.3,
            reasons=("all are at the same place and moved between the looks: nothing hangs",),
        )
    fact = view.facts[0]
    outside = fact.activity in ("input-wait", "storage-wait", "network-wait", "checkpoint")
    return Judgement(
        kind="stall" if outside or all(map(view.still, view.facts)) else "unknown",
        confidence=0.5 if outside else 0.3,
        reasons=(
            f"all {len(view.facts)} are at the same place, and nobody is apart: "
            f"{fact.label or place_of(fact)}",
        ),
    )


def _outlier(view: Scene) -> Judgement | None:
    """No table knows where they are, but most are at one place and a few are not."""
    facts = [fact for fact in view.facts if fact.signature]
    if len(facts) < 3 or view.waiting:
        return None
    for place in (_exact, _functions, _activity):
        (main, count), *_ = Counter(map(place, facts)).most_common(1)
        apart = [fact for fact in facts if place(fact) != main]
        if count * 3 < len(facts) * 2 or not apart:
            continue
        crowd = next(fact for fact in facts if place(fact) == main)
        members = [fact for fact in facts if place(fact) == main]
        if crowd.waits_for_others is False or any(map(view.moved, members)):
            return None
        if any(map(view.moved, apart)):
            return None
        kinds = tuple(fault_kind(f, view.movements.get(f.process, "unknown")) for f in apart)
        twice = all(map(view.still, apart)) and all(map(view.still, members))
        return Judgement(
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


def _alone(view: Scene) -> Judgement | None:
    """One process: there is nobody to compare it with."""
    if len(view.facts) != 1:
        return None
    (fact,) = view.facts
    kind = fault_kind(fact, view.movements.get(fact.process, "unknown"))
    return Judgement(
        kind="unknown" if fact.waits_for_others or fact.activity == "unknown" else kind,
        confidence=0.2,
        reasons=(
            f"only one process was seen: {apart_sentence(view, fact)}",
            "with nobody to compare it with, it cannot be told whether others wait for it",
        ),
    )


_RULES: tuple[Callable[[Scene], Judgement | None], ...] = (
    _nothing,
    proofs.stopped,
    proofs.gil,
    proofs.blocked,
    proofs.gone,
    _alone,
    _not_waiting,
    _beside_doubtful,
    _device,
    _left_the_crowd,
    _doubtful,
    _other_collective,
    _all_wait,
    _same_outside,
    _outlier,
)


def _exact(fact: StackFact) -> object:
    return fact.signature


def _functions(fact: StackFact) -> object:
    return tuple(place.rpartition(":")[0] or place for place in fact.signature)


def _activity(fact: StackFact) -> object:
    return _functions(fact) if fact.activity == "unknown" else fact.activity

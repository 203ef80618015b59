"""Who holds the others up, judged from where the processes of one job stand.

Every rule answers with a ``Judgement`` or with None; ``judge`` asks them in the order of their
strength. No rule names more than half of the processes, and none names a process that is known to
wait for others, but where its collective is another one than everybody else's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ray_sentinel.evidence.stacks.classify import is_collective_kernel
from ray_sentinel.evidence.stacks.compare import Movement
from ray_sentinel.evidence.stacks.problems import process_gone
from ray_sentinel.evidence.stacks.tree import place_of, who
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.stacks import Activity, StackFact

KINDS: Mapping[Activity, FaultKind] = {
    "collective-wait": "collective-mismatch",
    "collective-enter": "collective-mismatch",
    "device-wait": "device-stuck",
    "gil-wait": "gil-held",
    "lock-wait": "lock-deadlock",
    "input-wait": "input-wait",
    "storage-wait": "storage-wait",
    "checkpoint": "storage-wait",
    "network-wait": "input-wait",
    "startup": "startup-stuck",
    "sleep": "host-stuck",
    "allocation": "host-stuck",
    "compile": "startup-stuck",
    "idle": "host-stuck",
    "compute": "host-stuck",
    "unknown": "host-stuck",
}
TRANSFERS = frozenset({"send", "recv", "send_recv"})
"""Operations between two ranks: a pipeline's stages wait in different ones."""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's answer."""

    kind: FaultKind
    confidence: float
    culprits: tuple[StackFact, ...] = ()
    reasons: tuple[str, ...] = ()
    """Sentences in the order of the reasoning."""
    kinds: tuple[FaultKind, ...] = ()
    """One for each culprit, where they differ."""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks' processes at the last look, sorted by what they wait for."""

    facts: tuple[StackFact, ...]
    movements: Mapping[ProcessId, Movement]
    waiting: tuple[StackFact, ...] = ()
    """In a collective or another wait for ranks."""
    elsewhere: tuple[StackFact, ...] = ()
    """Known not to wait for ranks, or in frames that no table knows."""
    doubtful: tuple[StackFact, ...] = ()
    """In a known place that may or may not be a wait for ranks: the device, the backward pass."""
    unread: tuple[StackFact, ...] = ()
    """No stack could be read."""
    missing: tuple[int, ...] = ()
    """Ranks that the numbering leaves out."""

    def still(self, fact: StackFact) -> bool:
        """Whether the process was looked at twice and had not moved."""
        return self.movements.get(fact.process) in ("stuck", "in-place")

    def moved(self, fact: StackFact) -> bool:
        """Whether the process went elsewhere between two looks."""
        return self.movements.get(fact.process) == "moved"


def scene(facts: Sequence[StackFact], movements: Mapping[ProcessId, Movement]) -> Scene:
    """Sort ``facts`` (one a process) into who waits, who does not, and who cannot be told."""
    waiting, elsewhere, doubtful, unread = [], [], [], []
    for fact in facts:
        if not fact.signature:
            unread.append(fact)
        elif fact.waits_for_others:
            waiting.append(fact)
        elif fact.waits_for_others is False or fact.activity in ("unknown", "idle"):
            elsewhere.append(fact)
        else:
            doubtful.append(fact)
    ranks = sorted({fact.rank.rank for fact in facts if fact.rank})
    missing = sorted(set(range(ranks[-1])) - set(ranks)) if ranks else []
    return Scene(
        facts=tuple(facts),
        movements=movements,
        waiting=tuple(waiting),
        elsewhere=tuple(elsewhere),
        doubtful=tuple(doubtful),
        unread=tuple(unread),
        missing=tuple(missing),
    )


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


def fault_kind(fact: StackFact, movement: Movement = "unknown") -> FaultKind:
    """The kind of fault that a process is in, given that the others wait for it."""
    if fact.keeps_gil:
        return "gil-held"
    if movement == "moved":
        return "slow"
    if fact.activity in ("unknown", "compute") and (fact.active or fact.state == "R"):
        return "cpu-spin"
    return KINDS[fact.activity]


def _nothing(view: Scene) -> Judgement | None:
    if any(fact.signature or fact.state or process_gone(fact.error) for fact in view.facts):
        return None
    reason = "no stack could be read" if view.facts else "there are no stacks of ranks"
    return Judgement(kind="unknown", confidence=0.0, reasons=(reason,))


def _stopped(view: Scene) -> Judgement | None:
    # "t" is a debugger's, perhaps only for a moment; "T" is a signal's.
    found = [f for f in view.facts if f.state == "T" or (f.state == "t" and view.still(f))]
    if not found:
        return None
    if len(found) == len(view.facts) and len(found) > 1:
        reason = "all processes are stopped by a signal: the job is paused"
        return Judgement(kind="paused", confidence=0.7, reasons=(reason,))
    if len(found) > _half(view):
        return None
    reasons = tuple(f"{who([fact])} is stopped by a signal (state {fact.state})" for fact in found)
    return Judgement(kind="rank-stopped", confidence=0.9, culprits=tuple(found), reasons=reasons)


def _gil(view: Scene) -> Judgement | None:
    found = [fact for fact in view.elsewhere + view.doubtful if fact.keeps_gil]
    if not found or len(found) > max(1, _half(view)):
        return None
    # One look at a thread that is about to let the GIL go is no proof.
    sure = [f for f in found if view.still(f) or (_asleep(f) and (f.gil_waiters or view.waiting))]
    if not sure:
        return None
    twice = all(view.still(fact) for fact in sure)
    reasons = tuple(
        f"{who([fact])} keeps the GIL while it runs no Python ({fact.label})"
        + (f"; {fact.gil_waiters} of its threads wait for the GIL" if fact.gil_waiters else "")
        for fact in sure
    )
    return Judgement(
        kind="gil-held",
        confidence=0.85 if twice else 0.7,
        culprits=tuple(sure),
        reasons=reasons,
    )


def _asleep(fact: StackFact) -> bool:
    """Whether the telling thread is off the CPU: one that runs may let the GIL go in a moment."""
    if fact.active is not None:
        return not fact.active
    return fact.activity in ("sleep", "lock-wait", "input-wait", "storage-wait", "network-wait")


def _blocked(view: Scene) -> Judgement | None:
    found = [fact for fact in view.facts if fact.state == "D" and not fact.waits_for_others]
    if not found or len(found) > max(1, _half(view)) or any(view.moved(f) for f in found):
        return None
    reasons = tuple(
        f"{who([fact])} is blocked in the kernel (state D"
        + (f", in {fact.signature[-1]}" if fact.tool == "kernel" and fact.signature else "")
        + f"): {fact.label or 'the reason is not known'}"
        for fact in found
    )
    return Judgement(
        kind="kernel-blocked",
        confidence=0.85 if all(view.still(fact) for fact in found) else 0.7,
        culprits=tuple(found),
        reasons=reasons,
    )


def _gone(view: Scene) -> Judgement | None:
    found = [fact for fact in view.unread if process_gone(fact.error)]
    if not found or len(found) > _half(view) or not view.waiting or view.elsewhere:
        return None
    reasons = tuple(f"{who([fact])}: the process was gone" for fact in found)
    return Judgement(
        kind="rank-dead",
        confidence=0.6,
        culprits=tuple(found),
        reasons=(_wait_sentence(view), *reasons),
    )


def _not_waiting(view: Scene) -> Judgement | None:
    """Some wait for others, and some are elsewhere: those are waited for."""
    if not view.waiting or not view.elsewhere:
        return None
    apart = view.elsewhere
    if len(apart) > _half(view):
        return Judgement(
            kind="unknown",
            confidence=0.3,
            reasons=(
                _wait_sentence(view),
                f"but most are elsewhere: {_places(apart)}; who is waited for cannot be told",
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
    reasons = [_wait_sentence(view)]
    reasons += [_apart_sentence(view, fact) for fact in culprits]
    if len(culprits) < len(apart):
        rest = [fact for fact in apart if fact not in culprits]
        reasons.append(f"{who(rest)}: elsewhere too, but moved between the looks: not stuck")
    return Judgement(
        kind=_common(kinds),
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
    if view.waiting or not apart or len(apart) > min(len(view.doubtful), _half(view)):
        return None
    if any(fact.waits_for_others is None for fact in apart) or any(map(view.moved, view.doubtful)):
        return None
    culprits = tuple(fact for fact in apart if not view.moved(fact))
    if not culprits:
        return None
    kinds = tuple(fault_kind(f, view.movements.get(f.process, "unknown")) for f in culprits)
    twice = all(map(view.still, culprits + view.doubtful))
    return Judgement(
        kind=_common(kinds),
        confidence=0.6 if twice else 0.5,
        culprits=culprits,
        reasons=(
            f"{len(view.doubtful)} of {len(view.facts)} may wait for others: "
            + _places(view.doubtful),
            *(_apart_sentence(view, fact) for fact in culprits),
        ),
        kinds=kinds,
    )


def _device(view: Scene) -> Judgement | None:
    """All wait, and the lists of kernels set a device apart: it computes, or does nothing."""
    listed = [fact for fact in view.waiting + view.doubtful if fact.kernels_listed]
    computing = [f for f in listed if not all(map(is_collective_kernel, f.kernels))]
    waiting = [f for f in listed if f.kernels and f not in computing]
    apart = computing or [fact for fact in listed if not fact.kernels]
    if not apart or len(apart) >= len(waiting) or len(apart) > _half(view):
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
        reasons=(_wait_sentence(view), *reasons),
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
        kind=_common(kinds),
        confidence=confidence,
        culprits=few,
        reasons=(_wait_sentence(view), *(_apart_sentence(view, fact) for fact in few)),
        kinds=kinds,
    )


def _other_collective(view: Scene) -> Judgement | None:
    """All wait for others, but one of them in another collective than the rest."""
    if len(view.waiting) < 3 or view.elsewhere or view.doubtful:
        return None
    operations = Counter(fact.operation for fact in view.waiting)
    by_place = Counter((fact.operation, fact.signature) for fact in view.waiting)
    if len(by_place) < 2:
        return None
    if TRANSFERS & set(operations):
        return Judgement(
            kind="unknown",
            confidence=0.2,
            reasons=(
                _wait_sentence(view),
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
            reasons=(_wait_sentence(view), "they wait in different collectives: " + _ops(view)),
        )
    culprits = tuple(f for f in view.waiting if (f.operation, f.signature) in lone)
    if 3 * len(culprits) > len(view.waiting):
        return None
    other_operation = all(fact.operation != main[0] for fact in culprits)
    confidence = (0.6 if other_operation else 0.5) + 0.1 * all(map(view.still, culprits))
    reasons = tuple(
        f"{who([fact])} waits in {fact.operation or 'a collective'} at {place_of(fact)}, "
        f"where nobody else is"
        for fact in culprits
    )
    return Judgement(
        kind="collective-mismatch",
        confidence=round(confidence, 2),
        culprits=culprits,
        reasons=(_wait_sentence(view), *reasons),
    )


def _all_wait(view: Scene) -> Judgement | None:
    """Everybody waits for somebody: the cause is not in these stacks."""
    if not view.waiting or view.elsewhere or len(view.waiting) <= len(view.doubtful):
        return None
    reasons = [_wait_sentence(view)]
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
            kind=_common(kinds),
            confidence=0.55 if twice else 0.45,
            culprits=tuple(apart),
            reasons=(
                f"{count} of {len(facts)} are at one place: {crowd.label or place_of(crowd)}",
                *(_apart_sentence(view, fact) for fact in apart),
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
            f"only one process was seen: {_apart_sentence(view, fact)}",
            "with nobody to compare it with, it cannot be told whether others wait for it",
        ),
    )


_RULES: tuple[Callable[[Scene], Judgement | None], ...] = (
    _nothing,
    _stopped,
    _gil,
    _blocked,
    _gone,
    _alone,
    _not_waiting,
    _beside_doubtful,
    _device,
    _doubtful,
    _other_collective,
    _all_wait,
    _same_outside,
    _outlier,
)


def _half(view: Scene) -> int:
    return len(view.facts) // 2


def _exact(fact: StackFact) -> object:
    return fact.signature


def _functions(fact: StackFact) -> object:
    return tuple(place.rpartition(":")[0] or place for place in fact.signature)


def _activity(fact: StackFact) -> object:
    return _functions(fact) if fact.activity == "unknown" else fact.activity


def _common(kinds: Sequence[FaultKind]) -> FaultKind:
    """The kind that most culprits have; the first of them where they are even."""
    return Counter(kinds).most_common(1)[0][0]


def _wait_sentence(view: Scene) -> str:
    labels = Counter(fact.label or "a wait" for fact in view.waiting)
    parts = [f"{count} {label}" for label, count in labels.most_common(5)]
    return f"{len(view.waiting)} of {len(view.facts)} wait for others: " + ", ".join(parts)


def _apart_sentence(view: Scene, fact: StackFact) -> str:
    text = f"{who([fact])} is elsewhere: {fact.label or 'in code that no table knows'}"
    spot = place_of(fact)
    if spot and spot not in text:
        text += f", at {spot}"
    movement = view.movements.get(fact.process, "unknown")
    said = {
        "stuck": ", and had not moved at the next look",
        "in-place": ", and moved only within that function",
        "moved": ", and moved between the looks",
        "unknown": "",
    }
    return text + said[movement]


def _places(facts: Sequence[StackFact]) -> str:
    counted = Counter(fact.label or "unknown" for fact in facts)
    return ", ".join(f"{count} {label}" for label, count in counted.most_common(5))


def _ops(view: Scene) -> str:
    counted = Counter((fact.operation or "a collective", place_of(fact)) for fact in view.waiting)
    return ", ".join(f"{n} in {op} at {place}" for (op, place), n in counted.most_common(6))

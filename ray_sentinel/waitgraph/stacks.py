"""Who holds a job up, from the stacks of its ranks.

Frames leave open who waits for whom, so suppositions are tried in the order of their strength: some
ranks wait in an operation, and others have not come to it. The graph of the facts says whom they
wait for then; these are named if they are few enough to be the exception among the ranks.

``explain`` is a pure function of one or more rounds of facts. A round is one look at the job's
processes; the facts of one process in one round are merged by ``classify_process`` before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice
from operator import attrgetter, not_
from typing import NamedTuple

import msgspec

from ray_sentinel.evidence.minority import excepted, half, third, under_half
from ray_sentinel.evidence.movement import Movement
from ray_sentinel.evidence.sentences import counted, has_not_come, wait
from ray_sentinel.evidence.stacks.classify import is_collective_kernel
from ray_sentinel.evidence.stacks.compare import PYTHON_ONLY, function_of, movements
from ray_sentinel.evidence.stacks.left_loop import past_the_loop
from ray_sentinel.evidence.stacks.tree import StackClass, classes, place_of, who
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import Culprit, EvidenceItem, FaultKind
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.confidence import (
    MOVED,
    MOVES,
    OUTNUMBERED,
    SEEN_ONCE,
    STACKS,
    Testimony,
    stacks_weight,
    stated,
    weakest,
    witnesses,
)
from ray_sentinel.waitgraph.solver import solve
from ray_sentinel.waitgraph.stack_facts import TRANSFERS, Stand, doing, facts_if, stands


class _Weight(NamedTuple):
    """What a supposition is worth."""

    most: Callable[[int], int]
    """How many can be the exception among so many ranks."""
    once: float
    """Its strength if those it rests on were seen once."""
    twice: float
    """Its strength if they stood still in two looks."""
    kind: FaultKind | None = None
    """The kind of fault, if it does not depend on what the culprit does."""


WEIGHTS: Mapping[str, _Weight] = {
    # What is seen of a rank alone shows that it cannot go on.
    "rank-stopped": _Weight(half, 0.9, 0.9, "rank-stopped"),
    "gil-held": _Weight(half, 0.7, 0.85, "gil-held"),
    "kernel-blocked": _Weight(half, 0.7, 0.85, "kernel-blocked"),
    # Some are seen waiting, and others are in known code elsewhere, or in code that no table knows.
    "elsewhere": _Weight(half, 0.75, 0.85),
    "unknown code": _Weight(half, 0.6, 0.7),
    # Nobody is seen waiting, but some may be, and the others are known to be elsewhere.
    "may wait": _Weight(half, 0.5, 0.6),
    # The devices of most wait in a collective; those of others run something else, or nothing.
    "device": _Weight(under_half, 0.65, 0.65, "device-stuck"),
    "idle device": _Weight(under_half, 0.5, 0.5, "device-stuck"),
    # Most stand where a collective may be hidden, and a few wait in another one.
    "hidden": _Weight(third, 0.5, 0.5, "collective-mismatch"),
    # Some are seen waiting, and others only may be.
    "may not wait": _Weight(under_half, 0.5, 0.6),
    # All are seen waiting, but one has left a loop, or is in a collective of its own.
    "past the loop": _Weight(lambda size: 1, 0.5, 0.6, "collective-mismatch"),
    "another call": _Weight(lambda size: 1, 0.6, 0.7, "collective-mismatch"),
    "another place": _Weight(lambda size: 1, 0.5, 0.6, "collective-mismatch"),
    # Most are at one place, whatever that is.
    "crowd": _Weight(third, 0.45, 0.55),
}
_OUTNUMBERED, _MOVING = 0.15, 0.1
"""What is taken off the strength if those elsewhere are more than half of those seen waiting, and
if they move."""


class _Supposition(NamedTuple):
    weight: str
    inside: Sequence[Stand]
    """Those that wait in the operation."""
    away: Sequence[Stand]
    """Those that have not come to it."""
    told: Sequence[str] = ()
    """The reasons, as sentences."""


class StacksCulprit(NamedTuple):
    """A rank that is named."""

    fact: StackFact
    told: str
    """What is said of it, as a predicate."""
    proof: tuple[str, ...]
    """By what it is named: the supposition, then what weakens it."""


class StacksJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the stacks of ranks show."""

    kind: FaultKind
    strength: float
    """How strong the proof is, from 0 to 1."""
    reasons: tuple[str, ...] = ()
    """The reasons as sentences, in the order of the reasoning."""
    culprits: tuple[StacksCulprit, ...] = ()


def judge(ranks: Iterable[StackFact], moved: Mapping[ProcessId, Movement]) -> StacksJudgement:
    """Who holds the others up, from one fact for each rank's process and how each has moved.

    At most half of them are named, and none that is known to wait for others, unless it waits in
    another collective than everybody else. "unknown" is a valid answer.
    """
    verdict = _StacksVerdict(tuple(ranks), moved)
    found = (verdict.named(supposed) for supposed in verdict.suppositions())
    return next(filter(None, found), None) or verdict.nobody()


class _StacksVerdict:
    def __init__(self, ranks: Sequence[StackFact], moved: Mapping[ProcessId, Movement]) -> None:
        self._ranks = ranks
        self._stands = stands(ranks, moved)
        self._waits, self._may, self._apart, self._unread = (
            [stand for stand in self._stands if stand.side == side]
            for side in ("waits", "may", "apart", "unread")
        )
        if self._waits:
            self._apart += [stand for stand in self._unread if stand.gone]
        self._paused = len(ranks) > 1 and all(stand.shows("rank-stopped") for stand in self._stands)
        self._aborting = [s for s in (*self._waits, *self._may) if s.fact.aborts and not s.moved]
        if not all(s.still for s in self._aborting) and _count(self._aborting) < len(ranks):
            self._aborting = []  # seen once: the others may still be told apart
        numbers = {fact.rank.rank for fact in ranks if fact.rank}
        below = range(max(numbers, default=0))
        missing = islice((number for number in below if number not in numbers), 10)
        self._absent = [f"rank {number}" for number in missing]
        self._absent += [who([fact]) for stand in self._unread for fact in stand.ranks]
        # The place is not known of those whose device alone was seen.
        comparable = not self._may and all(stand.fact.signature for stand in self._waits)
        self._calls = _sizes(self._waits if comparable else (), attrgetter("call"))
        told = _sizes(self._waits, lambda stand: stand.fact.label or "a wait")
        self._waiting = f"{_count(self._waits)} of {len(ranks)} wait for others: {_listed(told)}"
        self._may_be_waiting = (
            f"{_count(self._may)} of {len(ranks)} may wait for others: {_labels(self._may)}"
        )
        called = _sizes(self._waits, lambda stand: _call(stand.fact))
        self._called = ", ".join(f"{count} in {call}" for call, count in called.most_common(6))

    def suppositions(self) -> Iterator[_Supposition]:
        """Who may wait for whom, the strongest first."""
        waits, may, apart = self._waits, self._may, self._apart
        if self._paused:
            return
        for proof in DEFECTS:
            with_it = [stand for stand in self._stands if stand.shows(proof)]
            others = [stand for stand in self._stands if not stand.shows(proof)]
            yield _Supposition(proof, others, with_it)
        if waits and apart:
            steady = [stand for stand in apart if not stand.moved] or apart
            known = all(s.fact.waits_for_others is False and not s.gone for s in steady)
            weight = "elsewhere" if known else "unknown code"
            yield _Supposition(weight, [*waits, *may], apart, [self._waiting])
            return
        if all(stand.fact.waits_for_others is False for stand in apart):
            yield _Supposition("may wait", may, apart, [self._may_be_waiting])
        yield self._devices()
        if waits:
            yield from self._beside_those_who_may_wait()
            yield from self._past_the_loop()
        if not self._aborting:
            yield from self._other_calls()
            yield from self._crowds()

    def _devices(self) -> _Supposition:
        # How a host moves says nothing of its device.
        listed = [
            msgspec.structs.replace(stand, movement="unknown")
            for stand in (*self._waits, *self._may)
            if stand.fact.kernels_listed
        ]
        others = {stand.node: _other_kernel(stand.fact) for stand in listed}
        runs = [stand for stand in listed if others[stand.node]]
        away = runs or [stand for stand in listed if not stand.fact.kernels]
        inside = [s for s in listed if s.fact.kernels and not others[s.node]]
        weight = "device" if runs else "idle device"
        told = self._waiting if self._waits else self._may_be_waiting
        return _Supposition(weight, inside, away, [told])

    def _beside_those_who_may_wait(self) -> Iterator[_Supposition]:
        """Had the few that wait joined the many, and these waited in a collective, it would have
        ended: it is another one. Or else a few do not wait."""
        waits, may = self._waits, self._may
        places = {stand.fact.signature for stand in may}
        still = all(s.still for s in (*waits, *may)) and not any(s.fact.active for s in may)
        # Who receives waits for one sender, whatever collective the others are in.
        transfers = TRANSFERS & {stand.fact.operation for stand in waits}
        if len(places) == 1 and still and not self._unread and not transfers:
            told = f"{_count(may)} of {len(self._ranks)} stand in one place: {_labels(may)}"
            yield _Supposition("hidden", may, waits, [told, self._waiting])
        by_device = transfers and any(s.fact.activity == "device-wait" for s in may)
        if (len(places) == 1 or _count(may) <= 2) and not by_device:
            yield _Supposition("may not wait", waits, may, [self._waiting])

    def _past_the_loop(self) -> Iterator[_Supposition]:
        waits = self._waits
        complete = 3 <= _count(waits) == len(self._ranks) and not self._absent
        if complete and (past := past_the_loop(fact for s in waits for fact in s.ranks)):
            fact, place = past
            away = [stand for stand in waits if stand.ranks == (fact,)]
            inside = [stand for stand in waits if stand not in away]
            told = f"{who([fact])} has left a loop in which all others still are: it is at {place}"
            calls = f"the calls: {self._called}"
            yield _Supposition("past the loop", inside, away, [self._waiting, told, calls])

    def _other_calls(self) -> Iterator[_Supposition]:
        """All wait, but one of them in another collective than the rest."""
        transfers = TRANSFERS & {stand.fact.operation for stand in self._waits}
        if self._calls.total() > 2 and not transfers and not self._absent:
            main, _ = self._calls.most_common(1)[0]
            inside = [stand for stand in self._waits if stand.call == main]
            away = [stand for stand in self._waits if stand.call != main]
            same = {s.fact.operation for s in away} == {s.fact.operation for s in inside}
            weight = "another place" if same else "another call"
            yield _Supposition(weight, inside, away, [self._waiting, f"the calls: {self._called}"])

    def _crowds(self) -> Iterator[_Supposition]:
        """Nobody is seen waiting, but most are at one place, however narrowly that is taken."""
        seen = [stand for stand in self._stands if stand.fact.signature]
        if self._waits or _count(seen) < 3:
            return
        for place in (_exact, _activity):
            (main, _), *_ = _sizes(seen, place).most_common(1)
            model = next(stand for stand in seen if place(stand) == main)
            here = [
                place(stand) == main or _is_cut_short(stand, model) or _waits_alike(stand, model)
                for stand in seen
            ]
            crowd, away = list(compress(seen, here)), list(compress(seen, map(not_, here)))
            fact = model.fact
            if fact.waits_for_others is not False:
                told = (
                    f"{_count(crowd)} of {_count(seen)} are at one place: "
                    f"{fact.label or place_of(fact)}",
                    "whether they wait is not known from their frames: the others only stand apart",
                )
                yield _Supposition("crowd", crowd, away, told)

    def named(self, supposed: _Supposition) -> StacksJudgement | None:
        """The answer that names those whom the others wait for; None if there are none, or they are
        no exception."""
        weight, inside, away = WEIGHTS[supposed.weight], supposed.inside, supposed.away
        # Each has a fault of its own, even if it is the same.
        proof = weight.kind if weight.kind in DEFECTS else None
        places = Counter(
            fact.process if proof else fact.signature or fact.process
            for stand in away
            for fact in stand.ranks
        )
        size = _count(inside) + _count(away)
        few = excepted(places.values(), size, weight.most(size)) or (proof and size == 1)
        if not away or not few:
            return None
        roots = solve(facts_if(inside, away, proof), {stand.node for stand in away if proof})
        held = {root.members[0]: root.why for root in roots}
        found = [stand for stand in away if stand.node in held]
        moving = all(stand.moved for stand in found)
        if not found or (moving and not self._waits and not proof):
            return None
        seen = found if self._waits or proof else (*found, *inside)
        still = all(stand.still for stand in seen)
        weak = [] if still else [SEEN_ONCE]
        strength = weight.twice if still else weight.once
        if supposed.weight in ("elsewhere", "unknown code"):
            several = sum(len(stand.ranks) for stand in found if not stand.gone)
            outnumbered = several > half(_count(self._waits))
            strength -= _OUTNUMBERED * outnumbered + _MOVING * moving
            weak += [OUTNUMBERED] * outnumbered
        stands = {fact.process: stand for stand in found for fact in stand.ranks}
        accused = [(fact, stands[fact.process]) for fact in self._ranks if fact.process in stands]
        kinds = Counter(weight.kind or stand.kind for _, stand in accused)
        told = {stand.node: _told(stand, supposed, held[stand.node]) for stand in found}
        rest = [stand for stand in away if stand.node not in held and not proof]
        also = f"{_who(*rest)}: elsewhere too, but moved between the looks: not stuck"
        return StacksJudgement(
            kind=kinds.most_common(1)[0][0],
            strength=round(strength, 2),
            reasons=(*supposed.told, *[also] * bool(rest)),
            culprits=tuple(
                StacksCulprit(fact, told[stand.node], (_proof(stand, supposed), *weak))
                for fact, stand in accused
            ),
        )

    def nobody(self) -> StacksJudgement:
        """The answer that names nobody."""
        stands, waiting, size = self._stands, self._waiting, len(self._ranks)
        if not any(stand.gone or stand.fact.state or stand.side != "unread" for stand in stands):
            reason = "no stack could be read" if size else "there are no stacks of ranks"
            return _nobody("unknown", 0.0, reason)
        if self._paused:
            reason = "all processes are stopped by a signal: the job is paused"
            return _nobody("paused", 0.7, reason)
        if size == 1:
            fact = stands[0].fact
            unknown = fact.waits_for_others or fact.activity == "unknown"
            return _nobody(
                "unknown" if unknown else stands[0].kind,
                0.2,
                f"only one process was seen: {_who(stands[0])}, {_moves(stands[0])}",
                "with nobody to compare it with, it cannot be told whether others wait for it",
            )
        if self._waits and self._apart:
            return self._not_apart()
        if self._aborting:
            return _nobody(
                "lock-deadlock",
                0.5 if all(stand.still for stand in self._aborting) else 0.35,
                f"{_who(*self._aborting)} in ncclCommAbort: the abort of a communicator does not "
                "end, as where it waits for kernels of that communicator, or for a lock that the "
                "aborting thread's own process holds",
                "an abort follows from an error or a time-out before it: the watchdog's lines in "
                "the logs, and the flight recorder, tell who was waited for then",
            )
        if self._calls.total() > 2 and len(self._calls) > 1:
            return self._several_calls()
        if _count(self._waits) > _count(self._may):
            told = ["there are no stacks of " + ", ".join(self._absent[:20])] * bool(self._absent)
            told.append(
                "nobody is elsewhere: look at ranks that are not here, at the devices, at the "
                "network"
            )
            return _nobody("stall", 0.4, waiting, *told)
        reason = "the stacks do not set anybody apart: who holds the others up cannot be told"
        return self._outside() or _nobody("unknown", 0.1, reason)

    def _not_apart(self) -> StacksJudgement:
        """Some wait, but not for those elsewhere, as far as can be told."""
        apart, told = self._apart, _labels(self._apart)
        kind: FaultKind = "unknown"
        if _count(apart) > half(len(self._ranks) - _count(self._unread)):
            reason = f"but most do not: {told}; who is waited for cannot be told"
        elif any(stand.moved for stand in self._waits):
            kind = "slow" if all(stand.moved for stand in apart) else "unknown"
            reason = "those in collectives moved between the looks: they do not hang"
        else:
            reason = (
                f"the other half stand together elsewhere: {told}; which half is waited for cannot "
                "be told from stacks"
            )
        return _nobody(kind, 0.3, self._waiting, reason)

    def _several_calls(self) -> StacksJudgement:
        names = {stand.fact.operation for stand in self._waits}
        kind: FaultKind = "collective-mismatch" if len(names) > 1 else "unknown"
        told = [f"they wait in different collectives: {self._called}"]
        if TRANSFERS & names:
            kind = "unknown"
            told = [
                "transfers between single ranks are among them (a pipeline): from the stacks alone "
                "it cannot be told who is waited for; the flight recorder can"
            ]
        elif lone := [stand for stand in self._waits if self._calls[stand.call] == 1]:
            # One of them may wait for the other, in a group of their own.
            told.append(
                f"{_who(*lone)} wait in collectives in which nobody else is: which of them is "
                "wrong cannot be told from stacks; the flight recorder can"
            )
        return _nobody(kind, 0.2 if TRANSFERS & names else 0.3, self._waiting, *told)

    def _outside(self) -> StacksJudgement | None:
        """All do the same, and wait for no rank."""
        stands = self._stands
        places = {(stand.fact.activity, stand.fact.signature) for stand in stands}
        activities = {activity for activity, _ in places}
        # In a futex, say, some may wait for a lock, and others for ranks.
        known = all(stand.fact.waits_for_others is False for stand in stands)
        service = known and len(activities) == 1 and not activities & _ANYTHING
        if self._waits or self._unread or not (len(places) == 1 or service):
            return None
        if any(stand.moved for stand in stands):
            reason = "all are at the same place and moved between the looks: nothing hangs"
            return _nobody("slow", 0.3, reason)
        fact = stands[0].fact
        outside = fact.activity in ("input-wait", "storage-wait", "network-wait", "checkpoint")
        return _nobody(
            "stall" if outside or all(stand.still for stand in stands) else "unknown",
            0.5 if outside else 0.3,
            f"all {len(self._ranks)} are at the same place, and nobody is apart: "
            f"{fact.label or place_of(fact)}",
        )


DEFECTS: tuple[FaultKind, ...] = ("rank-stopped", "gil-held", "kernel-blocked")
_ANYTHING = {"unknown", "compute", "device-wait", "idle"}
"""Activities below which anything may be done."""


def _nobody(kind: FaultKind, strength: float, *reasons: str) -> StacksJudgement:
    return StacksJudgement(kind=kind, strength=strength, reasons=reasons)


def _other_kernel(fact: StackFact) -> str:
    """The first kernel on its device that is of no collective; empty if there is none."""
    return next((name for name in fact.kernels if not is_collective_kernel(name)), "")


def _exact(stand: Stand) -> object:
    return stand.fact.signature


def _activity(stand: Stand) -> object:
    fact = stand.fact
    functions = tuple(map(function_of, fact.signature))
    return functions if fact.activity == "unknown" else fact.activity


def _is_cut_short(one: Stand, other: Stand) -> bool:
    """Whether two stands differ only in that one was seen without its native frames: what is left
    of it is the beginning of the other."""
    if (one.fact.tool in PYTHON_ONLY) == (other.fact.tool in PYTHON_ONLY):
        return False
    short, long = sorted((one.fact.signature, other.fact.signature), key=len)
    return long[: len(short)] == short


def _waits_alike(one: Stand, other: Stand) -> bool:
    """Whether both wait for their devices, in whatever line: ranks that log or that are of another
    stage do so elsewhere than most, and one collective may hold all of them up."""
    return one.fact.activity == other.fact.activity == "device-wait"


def _count(found: Iterable[Stand]) -> int:
    return sum(len(stand.ranks) for stand in found)


def _sizes(found: Iterable[Stand], by: Callable[[Stand], object]) -> Counter[object]:
    counted: Counter[object] = Counter()
    for stand in found:
        counted[by(stand)] += len(stand.ranks)
    return counted


def _who(*found: Stand) -> str:
    return who(fact for stand in found for fact in stand.ranks)


def _call(fact: StackFact) -> str:
    return f"{fact.operation or 'a collective'} at {place_of(fact)}"


def _labels(found: Iterable[Stand]) -> str:
    return _listed(_sizes(found, lambda one: "gone" if one.gone else one.fact.label or "unknown"))


def _listed(sizes: Counter[object]) -> str:
    return ", ".join(f"{count} {label}" for label, count in sizes.most_common(5))


def _told(stand: Stand, supposed: _Supposition, why: str) -> str:
    """What is said of ranks for which others wait; ``why`` is the fact that holds them up."""
    kind, inside = WEIGHTS[supposed.weight].kind, supposed.inside
    if kind in DEFECTS:
        return why
    others = counted(_count(inside))
    if kind == "device-stuck":
        runs = _other_kernel(stand.fact)[:120] or "nothing"
        return f"runs {runs} on its device, while those of {others} wait in a collective"
    does = why if stand.gone else f"is {_moves(stand)}"
    waiting = [one for one in inside if one.side == "waits"]
    if stand.side == "waits" or not waiting:
        verb = "is" if _count(inside) == 1 else "are"
        return f"{does}, while {others} {verb} {doing(inside[0].fact)}"
    names = {one.fact.operation for one in waiting}
    if "" in names or names & TRANSFERS:  # they wait to join, or for another call than their own
        return f"{does}, while {wait(_count(waiting))}"
    call = names.pop() if len(names) == 1 else "a collective"
    return has_not_come(call, f"in which {wait(_count(waiting))}", does)


def _proof(stand: Stand, supposed: _Supposition) -> str:
    """By what ranks are named. Of several that are elsewhere, some may be in unknown code."""
    if supposed.weight in ("elsewhere", "unknown code"):
        known = stand.fact.waits_for_others is False and not stand.gone
        return "elsewhere" if known else "unknown code"
    return supposed.weight


def _moves(stand: Stand) -> str:
    """What ranks do, where, and whether they moved."""
    return doing(stand.fact) + _MOVEMENTS[stand.movement]


_MOVEMENTS: Mapping[Movement, str] = {
    "stuck": ", not moving",
    "moved": ", moving",
    "in-place": ", in a loop",
    "unknown": "",
}


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What the stacks show. No culprits with kind "unknown" or "stall" is a valid answer."""

    kind: FaultKind
    confidence: float
    """How often such an answer is right, from 0 to 1; where nobody is named, the strength of the
    reason for that."""
    testimony: Testimony = {}
    """What is put on the culprit of whom it is least sure."""
    culprits: tuple[Culprit, ...] = ()
    processes: tuple[ProcessId, ...] = ()
    """The culprits' processes, in the order of ``culprits``."""
    evidence: tuple[EvidenceItem, ...] = ()
    waiting: tuple[str, ...] = ()
    """For each class of innocent processes, what it waits for."""
    classes: tuple[StackClass, ...] = ()
    """The classes of the ranks' own processes at the last look; those that do not wait come
    first."""
    helpers: tuple[StackFact, ...] = ()
    """Processes that were left out because they are not ranks."""
    movements: Mapping[ProcessId, Movement] = {}


def explain(rounds: Sequence[Sequence[StackFact]]) -> Explanation:
    """Explain the looks at one job's processes, oldest first; each holds one fact for each process.

    The last look at each process counts; earlier ones show what moved. A process that is missing in
    the last round is judged by its last look. Facts of several jobs must be explained separately.
    """
    last: dict[ProcessId, StackFact] = {}
    for look in rounds:
        for fact in look:
            last[fact.process] = _newer(last.get(fact.process), fact)
    helpers = tuple(fact for fact in last.values() if _is_helper(fact))
    ranks = [fact for fact in last.values() if not _is_helper(fact)]
    moved = movements(rounds)
    judgement = judge(ranks, moved)
    told = _testimony(judgement, moved)
    found = classes(ranks)
    return Explanation(
        kind=judgement.kind,
        confidence=stated(told) if told else judgement.strength,
        testimony=told,
        culprits=tuple(map(_culprit, judgement.culprits)),
        processes=tuple(one.fact.process for one in judgement.culprits),
        evidence=_evidence(ranks, judgement, helpers),
        waiting=tuple(
            f"{who(item.members)}: {item.label}" for item in found if item.waits_for_others
        ),
        classes=found,
        helpers=helpers,
        movements=moved,
    )


def _testimony(judgement: StacksJudgement, moved: Mapping[ProcessId, Movement]) -> Testimony:
    """What the stacks by themselves put on whom they name, as the live judge would."""
    weight = stacks_weight(judgement.strength)
    slow = dict.fromkeys(witnesses(STACKS, MOVES), MOVED)
    told = [
        {
            **dict.fromkeys(witnesses(STACKS, one.proof), weight),
            **(slow if moved.get(one.fact.process) == "moved" else {}),
        }
        for one in judgement.culprits
    ]
    return weakest(told) if told else {}


def _newer(old: StackFact | None, new: StackFact) -> StackFact:
    """The new look, with what only the old one knew."""
    if old is None:
        return new
    of_device = new if new.kernels_listed is not None else old
    return msgspec.structs.replace(
        new,
        rank=new.rank or old.rank,
        helper=new.helper or old.helper,
        command=new.command or old.command,
        kernels=of_device.kernels,
        kernels_listed=of_device.kernels_listed,
    )


def _is_helper(fact: StackFact) -> bool:
    if fact.rank is not None and fact.helper == "launcher or helper":
        return False  # judged by its command line alone: the known rank decides
    # An idle worker of Ray's that nobody knows as a rank has no part in the job.
    return bool(fact.helper) or (fact.activity == "idle" and fact.rank is None)


def _culprit(one: StacksCulprit) -> Culprit:
    rank, process = one.fact.rank, one.fact.process
    return Culprit(
        rank=rank.rank if rank else None,
        host=process.host,
        pid=process.pid or None,
        reason=one.told,
    )


def _evidence(
    ranks: Iterable[StackFact], judgement: StacksJudgement, helpers: Sequence[StackFact]
) -> tuple[EvidenceItem, ...]:
    items = [EvidenceItem(source=STACKS, text=text) for text in judgement.reasons]
    for fact, told, _ in judgement.culprits:
        innermost = " < ".join(reversed(fact.signature[-4:]))
        place = f"; its innermost calls: {innermost}" if innermost else ""
        items.append(
            EvidenceItem(
                source=STACKS,
                text=f"{who([fact])} {told}{place}"[:600],
                rank=fact.rank.rank if fact.rank else None,
                weight=judgement.strength,
                at=fact.at or None,
            )
        )
    items.extend(
        EvidenceItem(source=STACKS, text=f"{who([fact])}: {fact.error or 'no stack'}")
        for fact in ranks
        if not fact.signature and not fact.kernels
    )
    if helpers:
        kinds = sorted({fact.helper or "idle" for fact in helpers})
        text = f"left out as no ranks: {len(helpers)} processes ({', '.join(kinds)})"
        items.append(EvidenceItem(source=STACKS, text=text))
    return tuple(items)

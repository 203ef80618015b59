"""The ranks' processes in the last look, sorted, and the sentences that describe them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ray_sentinel.evidence.stacks.compare import Movement
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


class RuleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's answer."""

    kind: FaultKind
    confidence: float
    culprits: tuple[StackFact, ...] = ()
    reasons: tuple[str, ...] = ()
    """The reasons as sentences, in the order of the reasoning."""
    kinds: tuple[FaultKind, ...] = ()
    """The kind of each culprit, where they differ."""


class StacksContext(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks' processes in the last look, sorted by what they wait for."""

    facts: tuple[StackFact, ...]
    movements: Mapping[ProcessId, Movement]
    waiting: tuple[StackFact, ...] = ()
    """Processes that are in a collective or in another wait for ranks."""
    elsewhere: tuple[StackFact, ...] = ()
    """Processes that are known not to wait for ranks, or are in frames that no table knows."""
    doubtful: tuple[StackFact, ...] = ()
    """Processes in a known place that may or may not be a wait for ranks: the device, the backward
    pass. Also those of which only the kernels on the device were seen."""
    unread: tuple[StackFact, ...] = ()
    """Processes whose stack could not be read."""
    missing: tuple[int, ...] = ()
    """Ranks that are missing in the numbering."""

    def still(self, fact: StackFact) -> bool:
        """Whether the process was looked at twice and had not moved."""
        return self.movements.get(fact.process) in ("stuck", "in-place")

    def moved(self, fact: StackFact) -> bool:
        """Whether the process's place changed between two looks."""
        return self.movements.get(fact.process) == "moved"


def build_context(
    facts: Sequence[StackFact], movements: Mapping[ProcessId, Movement]
) -> StacksContext:
    """Sort ``facts`` (one for each process) into those that wait, those that do not, and those for
    which that is unknown."""
    waiting, elsewhere, doubtful, unread = [], [], [], []
    for fact in facts:
        if not fact.signature and not fact.kernels:
            unread.append(fact)
        elif fact.waits_for_others:
            waiting.append(fact)
        elif not fact.signature:
            doubtful.append(fact)  # its device alone was seen: what its host does is not known
        elif fact.waits_for_others is False or fact.activity in ("unknown", "idle"):
            elsewhere.append(fact)
        else:
            doubtful.append(fact)
    ranks = sorted({fact.rank.rank for fact in facts if fact.rank})
    missing = sorted(set(range(ranks[-1])) - set(ranks)) if ranks else []
    return StacksContext(
        facts=tuple(facts),
        movements=movements,
        waiting=tuple(waiting),
        elsewhere=tuple(elsewhere),
        doubtful=tuple(doubtful),
        unread=tuple(unread),
        missing=tuple(missing),
    )


def fault_kind(fact: StackFact, movement: Movement = "unknown") -> FaultKind:
    """The kind of fault of a process, given that the others wait for it."""
    if fact.keeps_gil:
        return "gil-held"
    if movement == "moved":
        return "slow"
    if fact.activity in ("unknown", "compute") and (fact.active or fact.state == "R"):
        return "cpu-spin"
    return KINDS[fact.activity]


def half(view: StacksContext) -> int:
    """Half the number of processes, rounded down."""
    return len(view.facts) // 2


def common_kind(kinds: Sequence[FaultKind]) -> FaultKind:
    """The kind that most culprits have; the first of them in a tie."""
    return Counter(kinds).most_common(1)[0][0]


def wait_sentence(view: StacksContext) -> str:
    """How many processes wait for others, and in what."""
    labels = Counter(fact.label or "a wait" for fact in view.waiting)
    parts = [f"{count} {label}" for label, count in labels.most_common(5)]
    return f"{len(view.waiting)} of {len(view.facts)} wait for others: " + ", ".join(parts)


def apart_sentence(view: StacksContext, fact: StackFact) -> str:
    """What a process that is elsewhere does, where, and whether it moved."""
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


def places(facts: Sequence[StackFact]) -> str:
    """What the processes do, with counts, the most frequent first."""
    counted = Counter(fact.label or "unknown" for fact in facts)
    return ", ".join(f"{count} {label}" for label, count in counted.most_common(5))


def collectives(view: StacksContext) -> str:
    """The collectives in which processes wait, with counts and places, the most frequent first."""
    counted = Counter((fact.operation or "a collective", place_of(fact)) for fact in view.waiting)
    return ", ".join(f"{n} in {op} at {place}" for (op, place), n in counted.most_common(6))

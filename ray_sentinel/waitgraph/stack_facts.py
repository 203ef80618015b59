"""What the stacks of a job's ranks show, as facts of the graph of waits.

Which groups the ranks form cannot be seen from outside, so all are members of one operation: some
wait in it, and those that are elsewhere have not come to it. For some ranks the frames leave that
open, because the device or the backward pass may hide a collective; so facts are stated for a
given choice of those that wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from ray_sentinel.evidence.minority import half
from ray_sentinel.evidence.movement import STILL, Movement
from ray_sentinel.evidence.stacks.readers.problems import process_gone
from ray_sentinel.evidence.stacks.tree import place_of
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.stacks import Activity, StackFact
from ray_sentinel.waitgraph.facts import (
    IN_OPERATION,
    Broken,
    Elsewhere,
    Moves,
    WaitFact,
    WaitNode,
    WaitsFor,
    not_reached,
    process_node,
)

OPERATION = WaitNode("operation", "a collective of all ranks")
TRANSFERS = frozenset({"send", "recv", "send_recv"})
"""Operations between two ranks: the stages of a pipeline wait in different ones."""
ROOTED = frozenset({"broadcast", "scatter", "gather", "reduce"})
"""Collectives in which one rank does something different from the others."""

Side = Literal["waits", "may", "apart", "unread"]
"""``waits``: for ranks, in a collective or otherwise. ``may``: in a known place that may or may not
be such a wait, or only the kernels on its device were seen. ``apart``: known not to wait for ranks,
or in frames that no table knows. ``unread``: its stack could not be read."""

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
    "compile": "startup-stuck",
}
"""The kind of fault of a rank that the others wait for, by what it does; "host-stuck" for all
else."""
_ASLEEP = ("sleep", "lock-wait", "input-wait", "storage-wait", "network-wait")


def kind_of(fact: StackFact, movement: Movement = "unknown") -> FaultKind:
    """The kind of fault of a process, given that the others wait for it."""
    if fact.keeps_gil:
        return "gil-held"
    if movement == "moved":
        return "slow"
    if fact.activity in ("unknown", "compute") and (fact.active or fact.state == "R"):
        return "cpu-spin"
    return KINDS.get(fact.activity, "host-stuck")


class Stand(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks that are alike in all that is looked at: one node of the graph."""

    ranks: tuple[StackFact, ...]
    movement: Movement
    side: Side

    @property
    def fact(self) -> StackFact:
        """What was seen of each of them."""
        return self.ranks[0]

    @property
    def node(self) -> WaitNode:
        """Their node."""
        return process_node(self.fact.process)

    @property
    def still(self) -> bool:
        """Whether they were looked at twice and had not moved."""
        return self.movement in STILL

    @property
    def moved(self) -> bool:
        """Whether their place changed between two looks."""
        return self.movement == "moved"

    @property
    def kind(self) -> FaultKind:
        """The kind of fault, given that the others wait for them."""
        return "rank-dead" if self.gone else kind_of(self.fact, self.movement)

    @property
    def call(self) -> tuple[str, tuple[str, ...]]:
        """What is equal for ranks in one collective: its name, and where it was called. The root of
        a broadcast, a scatter or a gather comes to it by another way than the others."""
        operation = self.fact.operation
        return operation, () if operation in ROOTED else self.fact.signature

    @property
    def gone(self) -> bool:
        """Whether the process had ended when it was looked at."""
        return self.side == "unread" and process_gone(self.fact.error)

    def shows(self, defect: FaultKind) -> bool:
        """Whether a defect is seen that keeps them from going on, whoever else waits."""
        if defect == "rank-stopped":
            # "t" is a debugger's, perhaps only for a moment; "T" is a signal's.
            return self.fact.state == "T" or (self.fact.state == "t" and self.still)
        if defect == "gil-held":
            return self.fact.keeps_gil and self.side in ("may", "apart")
        return self.fact.state == "D" and not self.fact.waits_for_others

    def lasts(self, defect: FaultKind, waiting: bool) -> bool:
        """Whether the defect is more than what one look finds now and then. ``waiting``: other
        ranks were seen waiting."""
        if defect != "gil-held" or self.still:
            return not self.moved or defect == "rank-stopped"
        asleep = self.fact.activity in _ASLEEP
        if self.fact.active is not None:  # a running thread may release the GIL in a moment
            asleep = not self.fact.active
        return asleep and bool(self.fact.gil_waiters or waiting)

    def told(self, defect: FaultKind) -> str:
        """What of the defect is seen, as the predicate of a sentence."""
        fact = self.fact
        if defect == "rank-stopped":
            return f"is stopped by a signal (state {fact.state})"
        if defect == "gil-held":
            waiters = f"; {fact.gil_waiters} of its threads wait for the GIL"
            told = f"keeps the GIL while it runs no Python ({fact.label})"
            return told + waiters * bool(fact.gil_waiters)
        call = f", in {fact.signature[-1]}" if fact.tool == "kernel" and fact.signature else ""
        reason = fact.label or "the reason is not known"
        return f"is blocked in the kernel (state D{call}): {reason}"


def doing(fact: StackFact) -> str:
    """What a process does and where, for people: "sleeping at hold (train.py:7)"."""
    text = fact.label or fact.error or "in code that no table knows"
    spot = place_of(fact)
    return f"{text} at {spot}" if spot and spot not in text else text


def stands(
    ranks: Iterable[StackFact], movements: Mapping[ProcessId, Movement]
) -> tuple[Stand, ...]:
    """The nodes of ``ranks``, which has one fact for each process."""
    alike: dict[object, list[StackFact]] = {}
    for fact in ranks:
        form = (
            (fact.signature, fact.error if not fact.signature else ""),
            (fact.activity, fact.operation, fact.label, fact.waits_for_others),
            (fact.active, fact.state, fact.keeps_gil, fact.gil_waiters, fact.aborts),
            (fact.kernels, fact.kernels_listed, fact.tool),
            movements.get(fact.process, "unknown"),
        )
        alike.setdefault(form, []).append(fact)
    return tuple(
        Stand(
            ranks=tuple(members),
            movement=movements.get(members[0].process, "unknown"),
            side=_side(members[0]),
        )
        for members in alike.values()
    )


def _side(fact: StackFact) -> Side:
    if not fact.signature and not fact.kernels:
        return "unread"
    if fact.waits_for_others:
        return "waits"
    if not fact.signature:
        return "may"  # what its host does is not known
    if fact.waits_for_others is False or fact.activity in ("unknown", "idle"):
        return "apart"
    return "may"


def facts_if(
    inside: Iterable[Stand], away: Iterable[Stand], defect: FaultKind | None
) -> Iterator[WaitFact]:
    """What is seen if those ``inside`` wait in the operation, and those ``away`` do not, because of
    a ``defect`` or because they are elsewhere."""
    inside = tuple(inside)
    for stand in inside:
        yield WaitsFor(
            who=stand.node, awaited=OPERATION, how=IN_OPERATION, witness=stand.fact.tool
        )  # fmt: skip
    if _goes_on(inside):
        yield Moves(process=OPERATION)
    waiting = any(stand.side == "waits" for stand in inside)
    for stand in away:
        node, fact = stand.node, stand.fact
        if defect and not stand.lasts(defect, waiting):
            continue
        yield not_reached(node, OPERATION, fact.tool)
        if defect or stand.gone:
            why = stand.told(defect) if defect else "is gone"
            yield Broken(process=node, why=why, witness=fact.tool)
            continue
        yield Elsewhere(process=node, place=place_of(fact), doing=doing(fact), witness=fact.tool)
        if stand.moved:
            yield Moves(process=node, witness=fact.tool)


def _goes_on(inside: Iterable[Stand]) -> bool:
    """Whether those inside an operation do not hang in it: most moved; or, of those that only may
    be inside, a single one."""
    known = [stand for stand in inside if stand.side == "waits"]
    if not known:
        return any(stand.moved for stand in inside)
    moved = sum(len(stand.ranks) for stand in known if stand.moved)
    return moved > half(sum(len(stand.ranks) for stand in known))

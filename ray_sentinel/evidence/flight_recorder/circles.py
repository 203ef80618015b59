"""Closed circles of waiters: nobody outside is left to blame, so a wrong call was made inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ray_sentinel.evidence.flight_recorder.entry import Entry, Signature
from ray_sentinel.evidence.flight_recorder.equals import Equals
from ray_sentinel.evidence.flight_recorder.groups import Kind, say_ranks
from ray_sentinel.evidence.flight_recorder.waits import Operation, Waits
from ray_sentinel.evidence.flight_recorder.world import World


class Judgement(msgspec.Struct, frozen=True):
    """Of one circle: who broke it, or why that cannot be told."""

    culprits: dict[int, str] = {}
    """rank → reason."""
    mismatch: bool = False
    """The calls differ, whoever made the wrong one."""
    remark: str = ""


class Circles:
    """Judges circles by what their members called, compared with each other and with equals."""

    def __init__(self, world: World, waits: Waits, equals: Equals) -> None:
        self._world = world
        self._waits = waits
        self._equals = equals
        self._votes: dict[tuple[Kind, bool, int], dict[int, Entry]] | None = None

    def judge(self, ranks: Sequence[int], operations: Sequence[Operation]) -> Judgement:
        """Judge the ranks of a circle and the operations that they are held in."""
        remark = ""
        for operation in operations:
            if operation.key[0] == "collective" and operation.inside:
                verdict = self._inside(operation)
                if verdict.culprits:
                    return verdict
                remark = remark or (verdict.remark if verdict.mismatch else "")
        differing = self._differs_from_equals(ranks, operations)
        if differing.culprits:
            return differing
        odd = [rank for rank in self._equals.odd_ones(ranks) if rank in set(ranks)]
        if odd and len(odd) * 2 < len(ranks) + 1:
            return Judgement(self._say_odd(odd), mismatch=True)
        if remark:
            return Judgement(mismatch=True, remark=remark)
        missing = any(operation.absent for operation in operations)
        return Judgement(mismatch=missing, remark=self._say_unclear(ranks, operations))

    def _inside(self, operation: Operation) -> Judgement:
        """All members are inside one collective: do they call the same?"""
        group = self._world.group(operation.group)
        calls: dict[int, Entry] = {}
        for rank in operation.inside:
            entry = self._world.entry(rank, operation.group, operation.key[2])
            if entry is not None:
                calls[rank] = entry
        by_call: dict[Signature, list[int]] = {}
        for rank, entry in calls.items():
            by_call.setdefault(entry.signature(), []).append(rank)
        if len(by_call) < 2:
            return Judgement()
        what = f"number {operation.key[2]} in {group.label}"
        for call, ranks in by_call.items():
            if len(ranks) * 2 > len(calls):
                usual = calls[ranks[0]].title
                return Judgement(
                    {
                        rank: f"called {calls[rank].title} as {what}, where "
                        f"{len(ranks)} of {len(calls)} members called {usual}"
                        for rank in calls
                        if calls[rank].signature() != call
                    },
                    mismatch=True,
                )
        voted = self._sisters(calls, group.kind)
        if voted:
            return Judgement(voted, mismatch=True)
        said = "; ".join(
            f"ranks {say_ranks(ranks)} called {calls[ranks[0]].title}" for ranks in by_call.values()
        )
        return Judgement(
            mismatch=True, remark=f"mismatch in {what}: {said}; the numbers do not say who is wrong"
        )

    def _sisters(self, calls: dict[int, Entry], kind: Kind) -> dict[int, str]:
        """Groups of the same kind made the same call at this place: who differs from them?"""
        culprits: dict[int, str] = {}
        for rank, entry in calls.items():
            if reason := self._outvoted(rank, entry, kind, set(calls), 1):
                culprits[rank] = reason
        return culprits if len(culprits) < len(calls) else {}

    def _outvoted(
        self, rank: int, entry: Entry, kind: Kind, leave_out: set[int], least: int
    ) -> str:
        """Why a call is the odd one among those that equals made at its place; empty if not."""
        voters = self._recorded().get((kind, entry.p2p, entry.seq), {})
        equals = set(self._equals.of(rank)) - leave_out
        votes = Counter(
            voters[other].signature()
            for other in voters
            if other in equals and (voters[other].op != "coalesced" or voters[other].parts)
        )
        if votes.total() < least or (entry.op == "coalesced" and not entry.parts):
            return ""
        (usual, count), total = votes.most_common(1)[0], votes.total()
        if usual == entry.signature() or count * 2 <= total:
            return ""
        example = next(e for r, e in voters.items() if r in equals and e.signature() == usual)
        return (
            f"called {entry.title} where {count} of {total} ranks in the same position "
            f"called {example.title}"
        )

    def _differs_from_equals(
        self, ranks: Sequence[int], operations: Sequence[Operation]
    ) -> Judgement:
        """A rank held in another call than its equals made at the same place."""
        culprits: dict[int, str] = {}
        for operation in operations:
            kind = self._world.group(operation.group).kind
            members = set(self._world.group(operation.group).members)
            for rank in operation.held:
                entry = self._own(rank, operation)
                if entry is None:
                    continue
                if reason := self._outvoted(rank, entry, kind, members, 2):
                    culprits[rank] = reason
        return Judgement(culprits if len(culprits) * 2 <= len(ranks) else {}, mismatch=True)

    def _own(self, rank: int, operation: Operation) -> Entry | None:
        if operation.key[0] == "p2p":
            return operation.entry
        return self._world.entry(rank, operation.group, operation.key[2])

    def _recorded(self) -> dict[tuple[Kind, bool, int], dict[int, Entry]]:
        """(kind, point-to-point?, number) → rank → what it called there."""
        if self._votes is None:
            self._votes = {}
            for rank, dump in self._world.dumps.items():
                for entry in [*dump.last_done.values(), *dump.pending]:
                    group = self._world.group_of(rank, entry)
                    if group is not None:
                        key = (group.kind, entry.p2p, entry.seq)
                        self._votes.setdefault(key, {})[rank] = entry
        return self._votes

    def _say_odd(self, odd: Sequence[int]) -> dict[int, str]:
        reasons = {}
        for rank in odd:
            texts = []
            for key in self._waits.fronts.get(rank, ()):
                operation = self._waits.operations[key]
                label = self._world.group(operation.group).label
                texts.append(f"{label} number {operation.key[2]}")
            reasons[rank] = (
                f"is in {' and '.join(texts) or 'no operation'} though the calls that ranks in the "
                "same position made before it are missing, or are one too many, here"
            )
        return reasons

    def _say_unclear(self, ranks: Sequence[int], operations: Sequence[Operation]) -> str:
        if any(operation.absent for operation in operations):
            return (
                f"ranks {say_ranks(list(ranks))} wait for each other in different operations, and "
                "nothing says whose order is wrong"
            )
        labels = sorted({self._world.group(op.group).label for op in operations})
        return (
            f"ranks {say_ranks(list(ranks))} are all inside the same operation in "
            f"{', '.join(labels[:3])}: the device or the network, or they were just busy with it; "
            "the recorder cannot tell who"
        )

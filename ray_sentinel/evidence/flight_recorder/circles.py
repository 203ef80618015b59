"""Closed cycles of waiters: nobody outside the cycle can be to blame, so one of its members made a
wrong call."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from ray_sentinel.evidence.alignment import (
    Called,
    Differing,
    after_same_calls,
    differing,
    strayed,
    unlike_equals,
)
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.peer_roles import (
    MOST_VOTERS,
    Call,
    Counter,
    Equals,
    Role,
)
from ray_sentinel.evidence.flight_recorder.waits import Operation, Waits
from ray_sentinel.evidence.minority import half, most_odd
from ray_sentinel.evidence.sentences import called_otherwise
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.recorder import RecorderKind

_ASKED = {
    "members": "members",
    "equals": "ranks in the same position",
    "like groups": "members of like groups with the same calls before it",
}


class CircleJudgement(msgspec.Struct, frozen=True):
    """The judgement on one cycle: who broke it, or why that is unknown."""

    kind: RecorderKind
    """``collective-mismatch`` if the members' calls differ, whoever made the wrong one."""
    culprits: dict[int, str] = {}
    """Rank → why it is accused."""
    remark: str = ""
    """Why nobody is."""


class Circles:
    """Judges cycles by what their members called, compared with each other and with equal ranks."""

    def __init__(self, waits: Waits, equals: Equals) -> None:
        self._world = waits.world
        self._waits = waits
        self._equals = equals
        self._odd: dict[frozenset[Role], list[int]] = {}
        """By roles, the ranks whose counters contradict those of most of their equals: thousands
        of circles are of the same roles."""

    def judge(self, ranks: Sequence[int], operations: Sequence[Operation]) -> CircleJudgement:
        """Judge the ranks of a cycle and the operations that they wait in."""
        remark = ""
        for operation in operations:
            if operation.key[0] == "collective":
                culprits, unclear = self._compare(operation)
                if culprits:
                    return CircleJudgement("collective-mismatch", culprits)
                remark = remark or unclear
        culprits = self.odd_calls(ranks, operations) or self._out_of_sequence(ranks)
        if culprits or remark:
            return CircleJudgement("collective-mismatch", culprits, remark)
        for operation in operations:
            if late := self._not_started(operation):
                return CircleJudgement("device-stuck", late)
        missing = any(operation.absent for operation in operations)
        kind: RecorderKind = "collective-mismatch" if missing else "cannot-tell"
        return CircleJudgement(kind, {}, self._describe_unclear(ranks, operations, missing))

    def _out_of_sequence(self, ranks: Sequence[int]) -> dict[int, str]:
        """The few of these ranks whose counters contradict those of most of their equals."""
        odd = set(self._contradicting(ranks)).intersection(ranks)
        reasons = {}
        for rank in sorted(odd) if len(odd) <= half(len(ranks)) else ():
            inside = " and ".join(map(self._waits.numbered, self._waits.fronts.get(rank, ())))
            reasons[rank] = (
                f"is in {inside or 'no operation'} though the calls that ranks in the "
                "same position made before it are missing, or are one too many, here"
            )
        return reasons

    def _contradicting(self, ranks: Iterable[int]) -> list[int]:
        roles = frozenset(map(self._equals.role, ranks))
        if roles not in self._odd:
            self._odd[roles] = self._equals.odd_ones(roles)
        return self._odd[roles]

    def _not_started(self, operation: Operation) -> dict[int, str]:
        """Members whose device has not begun what their peers' devices wait in.

        Only where the recorder's timing is on. They are held in nothing older, so the device is
        stuck in work that is not recorded.
        """
        if operation.key[0] != "collective" or operation.absent or operation.elsewhere:
            return {}
        calls = {rank: self._waits.call(rank, operation) for rank in operation.inside}
        begun = [rank for rank, entry in calls.items() if entry is not None and entry.started]
        late = [
            rank
            for rank, entry in calls.items()
            if entry is not None and not entry.started and not self._lost_some(rank)
        ]
        if not begun or not late or len(late) > most_odd(len(calls)):
            return {}
        reason = (
            f"has enqueued {self._waits.numbered(operation)}, which {len(begun)} of its peers have "
            "started, but its device has not begun it: it is stuck in earlier work"
        )
        return dict.fromkeys(late, reason)

    def _lost_some(self, rank: int) -> bool:
        """Whether the ring has lost operations, transfers among them, that may still be pending."""
        places = (self._world.place(rank, group.id) for group in self._world.groups.of(rank))
        return any(place.collective.evicted or place.p2p.evicted for place in places)

    def odd_calls(self, ranks: Sequence[int], operations: Sequence[Operation]) -> dict[int, str]:
        """Those of ``ranks`` whose call, or whose earlier calls, differ from those of their equals,
        with the reason."""
        found = self._differs_from_equals(operations)
        return found if 0 < len(found) <= half(len(ranks)) else self._strayed(ranks, operations)

    def _compare(self, operation: Operation) -> tuple[dict[int, str], str]:
        """Whose call differs among all members that have this collective pending, or are done with
        it, with the reason; or why that cannot be told, if they do not agree."""
        group = self._world.group(operation.group)
        at: Call = (group.kind, False), operation.key[2]
        members = self._world.members(operation.group, operation.key[2])
        made = {
            rank: entry
            for rank in (*members["pending"], *members["done"], *members["retired"])
            if (entry := self._waits.call(rank, operation)) is not None
        }

        def by_equals(calls: Mapping[int, Called]) -> list[Differing]:
            odd = self._outvoted(made, at, calls, 1)
            return odd if len(odd) < len(calls) else []

        def by_like_groups(calls: Mapping[int, Called]) -> list[Differing]:
            """Groups of other stages are asked too."""
            others = (
                rank
                for other in self._world.groups.groups
                if other.kind == group.kind and other.id != group.id
                for rank in other.members
                if rank in self._world.dumps
            )
            return after_same_calls(calls, at, islice(others, MOST_VOTERS), self._equals.sequence)

        calls = _called(made, at)
        if odd := differing(calls, by_equals, by_like_groups):
            return {one.process: self._reason(one, made, at) for one in odd}, ""
        by_call: dict[Hashable, list[int]] = {}
        for one in calls:
            by_call.setdefault(one.call, []).append(one.process)
        if len(by_call) < 2:
            return {}, ""
        said = "; ".join(
            f"{name_ranks(ranks)} called {made[ranks[0]].title}" for ranks in by_call.values()
        )
        where = self._waits.numbered(operation)
        return {}, f"mismatch in {where}: {said}; the numbers do not say who is wrong"

    def _differs_from_equals(self, operations: Iterable[Operation]) -> dict[int, str]:
        """The ranks held in another call than their equals made at the same place."""
        culprits: dict[int, str] = {}
        for operation in operations:
            group = self._world.group(operation.group)
            held = ((rank, self._waits.call(rank, operation)) for rank in operation.held)
            made = {rank: entry for rank, entry in held if entry is not None}
            if made:
                entry = next(iter(made.values()))
                at: Call = (group.kind, entry.p2p), entry.seq
                odd = self._outvoted(made, at, set(group.members), 2)
                culprits |= {one.process: self._reason(one, made, at) for one in odd}
        return culprits

    def _outvoted(
        self, made: Mapping[int, Entry], at: Call, leave_out: Collection[int], least: int
    ) -> list[Differing]:
        """Those whose call differs from what most equals called at the same place.

        ``leave_out`` have no vote; with fewer than ``least`` votes there is no result.
        """

        def votes(one: Called) -> dict[int, Hashable]:
            equals = (other for other in self._equals.of(one.process) if other not in leave_out)
            return {
                other: entry.signature()
                for other in islice(equals, MOST_VOTERS)
                if (entry := self._equals.sequence(other).get(at))
            }

        if len(leave_out) >= len(self._world.dumps):
            return []
        return unlike_equals(_called(made, at), votes, least)

    def _reason(self, one: Differing, made: Mapping[int, Entry], at: Call) -> str:
        due = made.get(one.usual[0]) or self._equals.sequence(one.usual[0]).get(at)
        others = f"{len(one.usual)} of {one.asked} {_ASKED[one.by]}"
        call = self._world.title(one.process, made[one.process])
        return called_otherwise(call, others, due.title if due else "another")

    def _strayed(self, ranks: Iterable[int], operations: Iterable[Operation]) -> dict[int, str]:
        """Ranks that came to a common call after more, or fewer, other calls than their equals."""
        culprits: dict[int, str] = {}
        within = set(ranks)
        for operation in operations:
            where = self._waits.numbered(operation)
            for counts in self._counts(operation):
                odd, right = strayed(counts)
                reason = (
                    f"came to {where} after other calls than {len(right)} ranks "
                    "in the same position: it left one out, made one too many, or made them in "
                    "another order"
                )
                culprits |= dict.fromkeys(within.intersection(odd), reason)
        return culprits

    def _counts(self, operation: Operation) -> Iterable[dict[int, dict[Counter, int]]]:
        """For each role: the members that made this collective, and what they had made before."""
        by_role: dict[object, dict[int, dict[Counter, int]]] = {}
        if operation.key[0] == "collective":
            for rank in self._world.group(operation.group).members:
                entry = self._waits.call(rank, operation)
                if entry is not None and not self._world.dumps[rank].cut:
                    counts = by_role.setdefault(self._equals.role(rank), {})
                    counts[rank] = self._equals.path(rank, entry.record)
        return by_role.values()

    def _describe_unclear(
        self, ranks: Sequence[int], operations: Sequence[Operation], missing: bool
    ) -> str:
        ranks = ranks or sorted({rank for operation in operations for rank in operation.held})
        if missing:
            return (
                f"{name_ranks(ranks)} wait for each other in different operations, and "
                "nothing says whose order is wrong"
            )
        labels = sorted({self._world.group(op.group).label for op in operations})
        inside = "are all inside the same operation" if len(ranks) > 1 else "is inside an operation"
        return (
            f"{name_ranks(ranks)} {inside} in "
            f"{', '.join(labels[:3])}: the device or the network, or they were just busy with it; "
            "the recorder cannot tell who"
        )


def _called(made: Mapping[int, Entry], at: Call) -> list[Called]:
    return [Called(rank, at, entry.signature()) for rank, entry in made.items()]

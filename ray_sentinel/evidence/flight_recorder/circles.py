"""Closed cycles of waiters: nobody outside the cycle can be to blame, so one of its members made a
wrong call."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from ray_sentinel.evidence.flight_recorder.entry import Entry, Signature
from ray_sentinel.evidence.flight_recorder.group_ids import Kind
from ray_sentinel.evidence.flight_recorder.groups import some_ranks
from ray_sentinel.evidence.flight_recorder.peer_roles import Call, Counter, Equals
from ray_sentinel.evidence.flight_recorder.waits import Operation, Waits
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.evidence.minority import most_odd
from ray_sentinel.model.recorder import RecorderKind

_LEAST_USUAL = 2
"""Least number of equal ranks that must agree on a call: a single one may itself be wrong."""
_CALLS_BEFORE = 3
"""Number of preceding calls that must be equal too for two ranks to be at one place in the
program."""
HABIT = 5
"""Least number of earlier calls that show what a rank does in each step."""
_MOST_VOTERS = 24
"""Most equal ranks whose calls are compared: the whole dump of each is read again for it."""


class CircleJudgement(msgspec.Struct, frozen=True):
    """The judgement on one cycle: who broke it, or why that is unknown."""

    culprits: dict[int, str] = {}
    """Rank → why it is accused."""
    kind: RecorderKind = "collective-mismatch"
    """The kind of the culprits' fault."""
    mismatch: bool = False
    """The members' calls differ, whoever made the wrong one."""
    remark: str = ""


class Circles:
    """Judges cycles by what their members called, compared with each other and with equal ranks."""

    def __init__(self, world: World, waits: Waits, equals: Equals) -> None:
        self._world = world
        self._waits = waits
        self._equals = equals
        self._calls: dict[int, dict[tuple[Kind, bool, int], Entry]] = {}

    def judge(self, ranks: Sequence[int], operations: Sequence[Operation]) -> CircleJudgement:
        """Judge the ranks of a cycle and the operations that they wait in."""
        remark = ""
        for operation in operations:
            if operation.key[0] == "collective":
                verdict = self._compare(operation)
                if verdict.culprits:
                    return verdict
                remark = remark or (verdict.remark if verdict.mismatch else "")
        made = self.odd_calls(ranks, operations)
        if made.culprits:
            return made
        within = set(ranks)
        odd = [r for r in self._equals.odd_ones(ranks, self._comes_first) if r in within]
        if odd and len(odd) * 2 < len(ranks) + 1:
            return CircleJudgement(self._describe_odd(odd), mismatch=True)
        if remark:
            return CircleJudgement(mismatch=True, remark=remark)
        for operation in operations:
            if late := self._not_started(operation):
                return CircleJudgement(late, kind="device-stuck")
        missing = any(operation.absent for operation in operations)
        return CircleJudgement(mismatch=missing, remark=self._describe_unclear(ranks, operations))

    def _not_started(self, operation: Operation) -> dict[int, str]:
        """Members whose device has not begun what their peers' devices wait in.

        Only where the recorder's timing is on. They are held in nothing older, so the device is
        stuck in work that is not recorded.
        """
        if operation.key[0] != "collective" or operation.absent or operation.elsewhere:
            return {}
        calls = {rank: self._own(rank, operation) for rank in operation.inside}
        begun = [rank for rank, entry in calls.items() if entry is not None and entry.started]
        late = [
            rank
            for rank, entry in calls.items()
            if entry is not None and not entry.started and not self._lost_some(rank)
        ]
        if not begun or not late or len(late) > most_odd(len(calls)):
            return {}
        label = self._world.group(operation.group).label
        return {
            rank: f"has enqueued number {operation.key[2]} in {label}, which {len(begun)} of its "
            "peers have started, but its device has not begun it: it is stuck in earlier work"
            for rank in late
        }

    def _lost_some(self, rank: int) -> bool:
        """Whether the ring has lost operations, transfers among them, that may still be pending."""
        places = (self._world.place(rank, group.id) for group in self._world.groups.of(rank))
        return any(place.collective.evicted or place.p2p.evicted for place in places)

    def odd_calls(self, ranks: Sequence[int], operations: Sequence[Operation]) -> CircleJudgement:
        """Those of ``ranks`` whose call, or whose earlier calls, differ from those of their
        equals."""
        differing = self._differs_from_equals(ranks, operations)
        return differing if differing.culprits else self._strayed(ranks, operations)

    def _compare(self, operation: Operation) -> CircleJudgement:
        """Compare the calls of all members that have this collective pending, or are done with it.

        A clear majority names the others.
        """
        group = self._world.group(operation.group)
        calls: dict[int, Entry] = {}
        members = self._world.members(operation.group, operation.key[2])
        for rank in (*members["pending"], *members["done"], *members["retired"]):
            entry = self._world.entry(rank, operation.group, operation.key[2])
            if entry is not None:
                calls[rank] = entry
        by_call: dict[Signature, list[int]] = {}
        for rank, entry in calls.items():
            by_call.setdefault(entry.signature(), []).append(rank)
        if len(by_call) < 2:
            return CircleJudgement()
        what = f"number {operation.key[2]} in {group.label}"
        for call, ranks in by_call.items():
            if len(ranks) * 2 > len(calls):
                usual = calls[ranks[0]].title
                return CircleJudgement(
                    {
                        rank: f"called {calls[rank].title} as {what}, where "
                        f"{len(ranks)} of {len(calls)} members called {usual}"
                        for rank in calls
                        if calls[rank].signature() != call
                    },
                    mismatch=True,
                )
        voted = self._outvoted_by_same_kind(calls, group.kind)
        if voted := voted or self._outvoted_after_same_calls(operation, calls):
            return CircleJudgement(voted, mismatch=True)
        said = "; ".join(
            f"{some_ranks(ranks)} called {calls[ranks[0]].title}" for ranks in by_call.values()
        )
        return CircleJudgement(
            mismatch=True, remark=f"mismatch in {what}: {said}; the numbers do not say who is wrong"
        )

    def _outvoted_by_same_kind(self, calls: dict[int, Entry], kind: Kind) -> dict[int, str]:
        """Members whose call differs from what groups of the same kind called at this position."""
        culprits: dict[int, str] = {}
        for rank, entry in calls.items():
            if reason := self._outvoted(rank, entry, kind, set(calls), 1):
                culprits[rank] = reason
        return culprits if len(culprits) < len(calls) else {}

    def _outvoted_after_same_calls(
        self, operation: Operation, calls: dict[int, Entry]
    ) -> dict[int, str]:
        """Members whose call differs from the one call of all groups of this kind at this number.

        Groups of other stages are asked too. Their programs may be shifted against this one: so
        only ranks that made the same calls just before have a vote.
        """
        group = self._world.group(operation.group)
        seq = operation.key[2]
        before = range(seq - _CALLS_BEFORE, seq)
        votes: dict[int, Entry] = {}
        mine = self._path_to(next(iter(calls)), group.kind, before)
        if mine is None:
            return {}
        others = (
            rank
            for other in self._world.groups.groups
            if other.kind == group.kind and other.id != group.id
            for rank in other.members
            if rank in self._world.dumps
        )
        for rank in islice(others, _MOST_VOTERS):
            call = self._called(rank, group.kind, False, seq)
            if call is not None and self._path_to(rank, group.kind, before) == mine:
                votes[rank] = call
        usual = {call.signature() for call in votes.values()}
        if len(votes) < _LEAST_USUAL or len(usual) > 1:
            return {}
        odd = [rank for rank, entry in calls.items() if entry.signature() not in usual]
        if len(odd) * 2 > len(calls):
            return {}
        if not all(self._in_its_place(rank, calls[rank], group.kind, votes) for rank in odd):
            return {}
        example = next(iter(votes.values())).title
        return {
            rank: f"called {calls[rank].title} as number {seq} in {group.label}, where all "
            f"{len(votes)} members of like groups called {example} after the same calls"
            for rank in odd
        }

    def _in_its_place(self, rank: int, call: Entry, kind: Kind, votes: Mapping[int, Entry]) -> bool:
        """Whether a rank made ``call`` in place of the one call of ``votes`` (rank → call).

        Else it may be a call of its own stage alone, as a last stage makes for its loss, and its
        partner may have left it out. It is not where the voters make such calls too, where only
        the operation or the dtype differs, or where the rank goes on as the voters do.
        """
        if any(call.signature() in self._made(voter, kind).values() for voter in votes):
            return True
        if any(vote.numels == call.numels for vote in votes.values()):
            return True
        after = {self._made(voter, kind).get(call.seq + 1) for voter in votes} - {None}
        mine = self._made(rank, kind)
        if after and call.seq + 1 in mine:
            return after == {mine[call.seq + 1]}
        usual = {vote.signature() for vote in votes.values()}
        earlier = [made for seq, made in mine.items() if seq < call.seq]
        return sum(made in usual for made in earlier) >= HABIT and call.signature() not in earlier

    def _made(self, rank: int, kind: Kind) -> dict[int, Signature]:
        """A rank's collectives in its group of a kind, by number, as far as its dump shows."""
        self._called(rank, kind, False, 0)
        return {
            seq: entry.signature()
            for (which, p2p, seq), entry in self._calls[rank].items()
            if which == kind and not p2p
        }

    def _path_to(self, rank: int, kind: Kind, numbers: range) -> tuple[Signature, ...] | None:
        """What a rank called just before; None if its dump does not show all of it."""
        calls = [self._called(rank, kind, False, seq) for seq in numbers]
        known = [call.signature() for call in calls if call is not None]
        return tuple(known) if len(known) == len(calls) else None

    def _outvoted(
        self, rank: int, entry: Entry, kind: Kind, leave_out: set[int], least: int
    ) -> str:
        """How a call differs from what most equals called under its number; empty if it does not.

        ``leave_out`` have no vote; with fewer than ``least`` votes there is no result.
        """
        if len(leave_out) >= len(self._world.dumps):
            return ""
        equals = (other for other in self._equals.of(rank) if other not in leave_out)
        voters = {
            other: call
            for other in islice(equals, _MOST_VOTERS)
            if (call := self._called(other, kind, entry.p2p, entry.seq)) is not None
        }
        votes = collections.Counter(
            call.signature() for call in voters.values() if call.op != "coalesced" or call.parts
        )
        if votes.total() < least or (entry.op == "coalesced" and not entry.parts):
            return ""
        (usual, count), total = votes.most_common(1)[0], votes.total()
        if usual == entry.signature() or count * 2 <= total:
            return ""
        example = next(call for call in voters.values() if call.signature() == usual)
        return (
            f"called {entry.title} where {count} of {total} ranks in the same position "
            f"called {example.title}"
        )

    def _differs_from_equals(
        self, ranks: Sequence[int], operations: Sequence[Operation]
    ) -> CircleJudgement:
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
        return CircleJudgement(culprits if len(culprits) * 2 <= len(ranks) else {}, mismatch=True)

    def _strayed(self, ranks: Sequence[int], operations: Sequence[Operation]) -> CircleJudgement:
        """Ranks that came to a common call after more, or fewer, other calls than their equals."""
        culprits: dict[int, str] = {}
        for operation in operations:
            if operation.key[0] != "collective":
                continue
            for paths in self._paths(operation):
                total = sum(len(same) for same in paths.values())
                usual = max(paths.values(), key=len)
                if (
                    len(paths) < 2
                    or total - len(usual) > most_odd(total)
                    or len(usual) < _LEAST_USUAL
                ):
                    continue
                label = self._world.group(operation.group).label
                for same in paths.values():
                    if same is not usual:
                        culprits |= {
                            rank: f"came to number {operation.key[2]} in {label} after other calls "
                            f"than {len(usual)} ranks in the same position: it left one out, made "
                            "one too many, or made them in another order"
                            for rank in same
                        }
        return CircleJudgement(
            {r: why for r, why in culprits.items() if r in set(ranks)}, mismatch=True
        )

    def _paths(self, operation: Operation) -> list[dict[object, list[int]]]:
        """For each role: the members that made this call, by what they had made before it."""
        by_role: dict[object, dict[int, dict[Counter, int]]] = {}
        for rank in self._world.group(operation.group).members:
            entry = self._world.entry(rank, operation.group, operation.key[2])
            if entry is not None and not self._world.dumps[rank].cut:
                paths = by_role.setdefault(self._equals.role(rank), {})
                paths[rank] = self._equals.path(rank, entry.record)
        result = []
        for paths in by_role.values():
            known = set.intersection(*({*path} for path in paths.values()))
            alike: dict[object, list[int]] = {}
            for rank, path in paths.items():
                alike.setdefault(frozenset((key, path[key]) for key in known), []).append(rank)
            result.append(alike)
        return result

    def _own(self, rank: int, operation: Operation) -> Entry | None:
        if operation.key[0] == "p2p":
            return operation.entry
        return self._world.entry(rank, operation.group, operation.key[2])

    def _comes_first(self, one: Call, other: Call, voters: list[int]) -> bool | None:
        """Whether ``one`` call comes before ``other`` in the program, by what equals did."""
        votes = set(self.order_votes(one, other, voters))
        return votes.pop() if len(votes) == 1 else None

    def order_votes(self, one: Call, other: Call, voters: list[int]) -> list[bool]:
        """For each rank that made either of the two calls, whether ``one`` came first."""
        votes = []
        for rank in voters[:_MOST_VOTERS]:
            first = self._called(rank, *one[0], one[1])
            second = self._called(rank, *other[0], other[1])
            if first and second:
                votes.append(first.record < second.record)
            elif first and self._not_made(rank, other):
                votes.append(True)
            elif second and self._not_made(rank, one):
                votes.append(False)
        return votes

    def made_before(self, rank: int, one: Call, other: Call) -> int | None:
        """The number that a rank had reached in the counter of ``one`` when it made the call before
        ``other``; None if its dump does not show that call."""
        counter, number = other
        if number == 1:
            return 0
        last = self._called(rank, *counter, number - 1)
        if last is None:
            return None
        numbers = (
            seq
            for (*which, seq), entry in self._calls[rank].items()
            if tuple(which) == one[0] and entry.record < last.record
        )
        return max(numbers, default=0)

    def _not_made(self, rank: int, call: Call) -> bool:
        """Whether a rank's counters prove that it has not come to a call; a dump may hide it."""
        progress = self._equals.counters(rank).get(call[0])
        if progress is None or progress.enqueued is None:
            return False
        return progress.enqueued < call[1]

    def _called(self, rank: int, kind: Kind, p2p: bool, seq: int) -> Entry | None:
        """What a rank called at one place of its group of a kind."""
        if rank not in self._calls:
            calls: dict[tuple[Kind, bool, int], Entry] = {}
            for entry in self._world.history(rank):
                group = self._world.group_of(rank, entry)
                if group is not None:
                    calls[group.kind, entry.p2p, entry.seq] = entry
            self._calls[rank] = calls
        return self._calls[rank].get((kind, p2p, seq))

    def _describe_odd(self, odd: Sequence[int]) -> dict[int, str]:
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

    def _describe_unclear(self, ranks: Sequence[int], operations: Sequence[Operation]) -> str:
        if any(operation.absent for operation in operations):
            return (
                f"{some_ranks(ranks)} wait for each other in different operations, and "
                "nothing says whose order is wrong"
            )
        labels = sorted({self._world.group(op.group).label for op in operations})
        inside = "are all inside the same operation" if len(ranks) > 1 else "is inside an operation"
        return (
            f"{some_ranks(ranks)} {inside} in "
            f"{', '.join(labels[:3])}: the device or the network, or they were just busy with it; "
            "the recorder cannot tell who"
        )

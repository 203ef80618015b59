"""Ranks that play the same part, and what their counters say of each other.

Equals run one program, so they make one sequence of calls; how far each came is a point on it. A
rank whose counters lie beside that sequence made another call. A rank that stands further back than
an equal that waits for the same is held by nothing that the equal is not held by: it stopped of
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ray_sentinel.evidence.flight_recorder.groups import Kind
from ray_sentinel.evidence.flight_recorder.partners import Partners
from ray_sentinel.evidence.flight_recorder.progress import Progress
from ray_sentinel.evidence.flight_recorder.world import World

Counter = tuple[Kind, bool]
"""A kind of group, and whether its point-to-point counter is meant."""

Role = tuple[object, ...]

ComesFirst = Callable[[tuple[Counter, int], tuple[Counter, int], list[int]], bool | None]
"""Whether one call precedes another in the program of these ranks; None where they do not say."""


class Equals:
    """Roles of all ranks, and comparisons between ranks of one role."""

    def __init__(self, world: World, partners: Partners) -> None:
        self.world = world
        self._partners = partners
        self._p2p_kinds = self._find_p2p_kinds()
        self.roles: dict[Role, list[int]] = {}
        self._role: dict[int, Role] = {}
        for rank in world.dumps:
            role = self._find_role(rank)
            self._role[rank] = role
            self.roles.setdefault(role, []).append(rank)
        self._counters: dict[int, dict[Counter, Progress]] = {}

    def of(self, rank: int) -> list[int]:
        """The other ranks that play the same part."""
        return [other for other in self.roles[self._role[rank]] if other != rank]

    def _find_p2p_kinds(self) -> set[Kind]:
        kinds: set[Kind] = set()
        for rank, dump in self.world.dumps.items():
            for entry in [*dump.pending, *dump.last_done.values()]:
                if entry.p2p or entry.p2p_seq > 0:
                    group = self.world.group_of(rank, entry)
                    if group is not None:
                        kinds.add(group.kind)
        return kinds

    def _find_role(self, rank: int) -> Role:
        """Kinds of groups, and the place in those that form a pipeline: the stage.

        Where stages talk over a group of the whole world as well as over a smaller one, the place
        in the world says nothing.
        """
        groups = sorted(self.world.groups.of(rank), key=lambda group: group.kind)
        talking = [group for group in groups if group.kind in self._p2p_kinds]
        small = [g for g in talking if len(g.members) < len(self.world.groups.world)]
        staged = {group.id for group in small or talking}
        return tuple(
            (group.kind, group.positions[rank] if group.id in staged else None) for group in groups
        )

    def counters(self, rank: int) -> dict[Counter, Progress]:
        """How far a rank came, by kind of group."""
        if rank not in self._counters:
            result: dict[Counter, Progress] = {}
            for group in self.world.groups.of(rank):
                place = self.world.place(rank, group.id)
                result[group.kind, False] = place.collective
                if group.kind in self._p2p_kinds:
                    result[group.kind, True] = place.p2p
            self._counters[rank] = result
        return self._counters[rank]

    def ahead_by(self, rank: int, other: int) -> tuple[int, int]:
        """In how many counters a rank has enqueued more than another, and in how many less."""
        mine, theirs = self.counters(rank), self.counters(other)
        more = less = 0
        for key in mine.keys() & theirs.keys():
            a, b = mine[key].enqueued, theirs[key].enqueued
            if a is not None and b is not None:
                more += a > b
                less += a < b
        return more, less

    def beside(self, rank: int, other: int) -> bool:
        """Whether two equals cannot both lie on one sequence of calls."""
        more, less = self.ahead_by(rank, other)
        return more > 0 and less > 0

    def pending(self, rank: int) -> set[tuple[Counter, int]]:
        """What a rank has enqueued and not completed, by kind of group and number."""
        result = set()
        for entry in self.world.dumps[rank].pending:
            group = self.world.group_of(rank, entry)
            if group is None:
                continue
            place = self.world.place(rank, group.id).of(entry.p2p)
            if place.launching != entry.seq and not place.evicted:
                result.add(((group.kind, entry.p2p), entry.seq))
        return result

    def stopped_early(self, rank: int) -> list[int]:
        """Equals that went on where this rank stopped though they wait for the same.

        Empty where as many equals stand where this rank stands: then something holds them all.
        """
        mine = self.pending(rank)
        counters = self.counters(rank)
        beyond, here = [], 1
        for other in self.of(rank) if mine else ():
            theirs = self.pending(other)
            if not mine <= theirs:
                continue
            further = [
                seq
                for key, seq in theirs - mine
                if key in counters
                and (enqueued := counters[key].enqueued) is not None
                and seq > enqueued
            ]
            if further:
                beyond.append(other)
            elif mine == theirs:
                here += 1
        return beyond if len(beyond) >= here else []

    def odd_ones(self, ranks: Iterable[int], comes_first: ComesFirst) -> list[int]:
        """The ranks without which all equals lie on one sequence; empty if that is not clear.

        Where two contradict each other alone, the order in which their equals made the two calls
        decides.
        """
        conflicts: dict[int, set[int]] = {}
        for rank in ranks:
            conflicts[rank] = {other for other in self.of(rank) if self.beside(rank, other)}
        for rank in [*conflicts]:
            for other in conflicts[rank]:
                conflicts.setdefault(other, set()).add(rank)
        odd: list[int] = []
        while any(conflicts.values()):
            most = max(len(others) for others in conflicts.values())
            worst = [rank for rank, others in conflicts.items() if len(others) == most]
            if any(other in worst for rank in worst for other in conflicts[rank]):
                worst = [rank for rank in worst if self._outvoted(rank, conflicts, comes_first)]
            if not worst:
                return []
            for rank in worst:
                odd.append(rank)
                for other in conflicts.pop(rank):
                    conflicts.get(other, set()).discard(rank)
        return sorted(odd)

    def _outvoted(self, rank: int, conflicts: dict[int, set[int]], comes_first: ComesFirst) -> bool:
        """Whether equals say, in all its conflicts, that this rank left out or added a call."""
        return bool(conflicts[rank]) and all(
            self._broke_order(rank, other, comes_first, set(conflicts)) for other in conflicts[rank]
        )

    def _broke_order(
        self, rank: int, other: int, comes_first: ComesFirst, leave_out: set[int]
    ) -> bool:
        mine, theirs = self.counters(rank), self.counters(other)
        voters = [equal for equal in self.of(rank) if equal not in leave_out]
        for ahead, behind in (
            (x, y)
            for x in mine.keys() & theirs.keys()
            for y in mine.keys() & theirs.keys()
            if _more(mine[x], theirs[x]) and _more(theirs[y], mine[y])
        ):
            # This rank made call ``ahead`` and not ``behind``; the other one the reverse.
            made, missed = theirs[ahead].enqueued, mine[behind].enqueued
            assert made is not None
            assert missed is not None
            if comes_first((behind, missed + 1), (ahead, made + 1), voters):
                return True
        return False


def _more(one: Progress, other: Progress) -> bool:
    return one.enqueued is not None and other.enqueued is not None and one.enqueued > other.enqueued

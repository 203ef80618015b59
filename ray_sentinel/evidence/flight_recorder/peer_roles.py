"""Ranks with the same role, and what a comparison of their counters shows.

Equal ranks run one program, so they make one sequence of calls, and each is at some point of it. A
rank whose counters do not lie on that sequence made a different call. A rank that is further back
than an equal rank waiting for the same operation stopped by itself: whatever holds it up would also
hold up the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ray_sentinel.evidence.alignment import CallSequence, Stand, odd_ones
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.group_ids import Kind
from ray_sentinel.evidence.flight_recorder.progress import CounterProgress
from ray_sentinel.evidence.flight_recorder.world import World

Counter = tuple[Kind, bool]
"""A kind of group, and whether its point-to-point counter is meant."""

Call = tuple[Counter, int]
"""A counter, and a sequence number that it gave."""

Role = tuple[object, ...]

MOST_VOTERS = 24
"""Most ranks whose calls are compared with that of one rank: the whole dump of each is read again
for it."""


class Equals:
    """The roles of all ranks, and comparisons between ranks of one role."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._p2p_kinds, self._visible = self._kinds_seen()
        self.roles: dict[Role, list[int]] = {}
        self._role: dict[int, Role] = {}
        for rank in world.dumps:
            role = self._find_role(rank)
            self._role[rank] = role
            self.roles.setdefault(role, []).append(rank)
        self._pending: dict[int, frozenset[Call]] = {}
        self._classes: dict[Role, dict[frozenset[Call], list[int]]] = {}
        self._counters: dict[int, dict[Counter, CounterProgress]] = {}
        self._sequences: dict[int, CallSequence[Entry]] = {}

    def of(self, rank: int) -> Iterator[int]:
        """The other ranks with the same role."""
        return (other for other in self.roles[self._role[rank]] if other != rank)

    def role(self, rank: int) -> Role:
        """The role of a rank."""
        return self._role[rank]

    def _kinds_seen(self) -> tuple[set[Kind], set[Kind]]:
        """Kinds of groups with sends and receives, and kinds with any entry in the dumps."""
        talking: set[Kind] = set()
        visible: set[Kind] = set()
        for rank, dump in self.world.dumps.items():
            for entry in dump.kept:
                group = self.world.group_of(rank, entry)
                if group is not None:
                    visible.add(group.kind)
                    if entry.p2p or entry.p2p_seq > 0:
                        talking.add(group.kind)
        return talking, visible

    def _find_role(self, rank: int) -> Role:
        """Kinds of groups, and the place in those that form a pipeline: the stage.

        Where stages talk over a group of the whole world as well as over a smaller one, the place
        in the world means nothing.
        """
        groups = sorted(self.world.groups.of(rank), key=lambda group: group.kind)
        talking = [group for group in groups if group.kind in self._p2p_kinds]
        small = [g for g in talking if len(g.members) < len(self.world.groups.world)]
        staged = {group.id for group in small or talking}
        return tuple((g.kind, g.positions[rank] if g.id in staged else None) for g in groups)

    def counters(self, rank: int) -> dict[Counter, CounterProgress]:
        """How far a rank came, by kind of group."""
        if rank not in self._counters:
            result: dict[Counter, CounterProgress] = {}
            for group in self.world.groups.of(rank):
                if group.kind not in self._visible:
                    continue
                place = self.world.place(rank, group.id)
                result[group.kind, False] = place.collective
                if group.kind in self._p2p_kinds:
                    result[group.kind, True] = place.p2p
            self._counters[rank] = result
        return self._counters[rank]

    def sequence(self, rank: int) -> CallSequence[Entry]:
        """What a rank called, by kind of group; its dump is read again the first time."""
        if rank not in self._sequences:
            made: dict[Call, Entry] = {}
            for entry in self.world.history(rank):
                group = self.world.group_of(rank, entry)
                if group is not None:
                    made[(group.kind, entry.p2p), entry.seq] = entry
            counters = self.counters(rank).items()
            reached = {counter: progress.enqueued for counter, progress in counters}
            self._sequences[rank] = CallSequence(made, reached)
        return self._sequences[rank]

    def path(self, rank: int, record: int) -> dict[Counter, int]:
        """How much a rank had enqueued in every kind of group when it made one call.

        It is derived from what the dump shows before and after that call, so it needs no finished
        operations.
        """
        spans: dict[Counter, list[tuple[int, int]]] = {}
        for entry in self.world.dumps[rank].kept:
            group = self.world.group_of(rank, entry)
            if group is not None:
                spans.setdefault((group.kind, entry.p2p), []).append((entry.record, entry.seq))
        result = {}
        for key, progress in self.counters(rank).items():
            later = [seq for at, seq in spans.get(key, ()) if at > record]
            count = min(later) - 1 if later else progress.enqueued
            if count is not None:
                result[key] = count
        return result

    def pending(self, rank: int) -> frozenset[Call]:
        """What a rank has enqueued and not completed, by kind of group and number."""
        if rank not in self._pending:
            result = set()
            for entry in self.world.dumps[rank].pending:
                group = self.world.group_of(rank, entry)
                if group is None:
                    continue
                place = self.world.place(rank, group.id).of(entry.p2p)
                if place.launching != entry.seq and not place.evicted:
                    result.add(((group.kind, entry.p2p), entry.seq))
            self._pending[rank] = frozenset(result)
        return self._pending[rank]

    def _standing(self, role: Role) -> dict[frozenset[Call], list[int]]:
        """The ranks of a role, together where they have the same pending."""
        if role not in self._classes:
            classes: dict[frozenset[Call], list[int]] = {}
            for rank in self.roles[role]:
                classes.setdefault(self.pending(rank), []).append(rank)
            self._classes[role] = classes
        return self._classes[role]

    def stopped_early(self, rank: int) -> list[int]:
        """Equal ranks that went on where this rank stopped, although they wait for the same
        operation.

        Empty if as many equal ranks stand where this rank stands: then something holds them all up.
        """
        mine = self.pending(rank)
        evicted = (
            self.world.place(rank, g.id).collective.evicted for g in self.world.groups.of(rank)
        )
        if not mine or any(evicted):
            # What the ring has lost may be what holds it.
            return []
        counters = self.counters(rank)
        classes = self._standing(self._role[rank])
        beyond: list[int] = []
        for theirs, ranks in classes.items():
            if mine < theirs and any(
                key in counters
                and (enqueued := counters[key].enqueued) is not None
                and seq > enqueued
                for key, seq in theirs - mine
            ):
                beyond += ranks
        return beyond if len(beyond) >= len(classes[mine]) else []

    def odd_ones(self, roles: Iterable[Role]) -> list[int]:
        """The ranks of some roles without which all that are equal lie on one sequence; empty if
        that is ambiguous."""
        stands: dict[Stand[Counter], list[int]] = {}
        for role in roles:
            for rank in self.roles[role]:
                stands.setdefault((role, self._stand(rank)), []).append(rank)
        return sorted(odd_ones(stands))

    def stand_alike(self, rank: int, others: Iterable[int]) -> list[int]:
        """Those of the other ranks that are equal and have enqueued exactly as much."""
        mine = self._stand(rank)
        return [
            other
            for other in others
            if self._role[other] == self._role[rank] and self._stand(other) == mine
        ]

    def _stand(self, rank: int) -> frozenset[Call]:
        return frozenset(
            (key, progress.enqueued)
            for key, progress in self.counters(rank).items()
            if progress.enqueued is not None
        )

"""Who waits for whom: a graph of ranks and the operations in which they wait.

A rank waits in its oldest pending operation. That operation leads on to every member that has not
enqueued it, or that waits in an older operation of its own; if all members are inside it, it leads
to all of them, and they form a cycle. The ends of the graph are what the others wait for.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from functools import cached_property
from typing import Literal

import msgspec

from ray_sentinel.evidence.alignment import contradicting, differ
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.partners import Partner, Partners
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.evidence.minority import most_odd

Key = tuple[Literal["collective", "p2p"], int, int, int]
"""The identity of an operation. A collective is (group, sequence, 0); a send, receive or batch is
(group, rank, record)."""


class Operation(msgspec.Struct, kw_only=True, eq=False):
    """One operation in which some rank waits."""

    key: Key
    group: int
    entry: Entry | None
    """One member's record of the operation; None where the ring has lost it."""
    held: list[int] = []
    """Ranks whose oldest pending operation this is."""
    absent: list[int] = []
    """Members that have not enqueued the operation."""
    elsewhere: list[int] = []
    """Members that have enqueued it but are held in an older operation."""
    inside: list[int] = []
    """Members that have it pending, where nobody is missing."""
    behind: list[int] = []
    """Members that have not completed an operation that needs everyone, where others have."""
    silent: list[int] = []
    """Members without a dump, or with one that does not tell, where nothing else explains the
    wait."""
    partners: list[Partner] = []

    @property
    def title(self) -> str:
        """What was called, for people."""
        return self.entry.title if self.entry else "an operation that the ring has lost"

    @property
    def number(self) -> int:
        """Its number in the group, by the member whose record is known."""
        return self.entry.seq if self.key[0] == "p2p" and self.entry else self.key[2]

    @property
    def awaited(self) -> set[int]:
        """Those for whom it waits; empty if all are inside."""
        return {*self.absent, *self.elsewhere, *self.silent}


class Waits:
    """The graph. ``fronts`` are the operations in which each rank waits."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.partners = Partners(world)
        self.fronts: dict[int, list[Operation]] = {}
        self.operations: dict[Key, Operation] = {}
        for rank in world.dumps:
            self.fronts[rank] = self._fronts(rank)
            for operation in self.fronts[rank]:
                operation.held.append(rank)
        for operation in self.operations.values():
            self._lead_on(operation)

    def _fronts(self, rank: int) -> list[Operation]:
        evicted = self._evicted(rank)
        if evicted:
            return evicted
        if self.world.dumps[rank].cut:
            return self._vague(rank)
        for entry in self.world.dumps[rank].pending:
            group = self.world.group_of(rank, entry)
            if group is None:
                continue
            if self.world.in_launch(rank, entry):
                continue
            if entry.p2p:
                if not entry.retired:
                    return [self._add(("p2p", group.id, rank, entry.record), entry)]
            elif self.world.state(rank, group.id, entry.seq) != "done":
                members = self.world.members(group.id, entry.seq)
                if rank not in members["retired"]:
                    return [self._add(("collective", group.id, entry.seq, 0), entry)]
        return []

    def idle(self, known: Container[int] = ()) -> list[int]:
        """The ranks that have nothing pending, without those whose wait or fault is ``known``."""
        found = (rank for rank, held in self.fronts.items() if not held and rank not in known)
        return [rank for rank in found if not self.world.says_nothing(rank)]

    def call(self, rank: int, operation: Operation) -> Entry | None:
        """A rank's own record of an operation."""
        if operation.key[0] == "p2p":
            return operation.entry
        return self.world.entry(rank, operation.group, operation.number)

    def numbered(self, operation: Operation) -> str:
        """The group and the number of an operation, for people."""
        return self.world.group(operation.group).numbered(operation.number)

    def title(self, operation: Operation) -> str:
        """What was called where, for people."""
        return self.world.group(operation.group).numbered(operation.number, operation.title)

    def outnumber(self, idle: Collection[int], ident: int, seq: int) -> bool:
        """Whether more ``idle`` ranks lack a collective than have it pending: those that have may
        have made one call too many."""
        return len(self.world.members(ident, seq)["pending"]) < len(idle)

    def _evicted(self, rank: int) -> list[Operation]:
        """Pending operations that the ring has lost: older than any entry, and thin evidence.

        Taken as pending only where no member is known to have completed them.
        """
        result = []
        for group in self.world.groups.of(rank):
            progress = self.world.place(rank, group.id).collective
            if progress.evicted and progress.done is not None:
                seq = progress.done + 1
                if not self.world.members(group.id, seq)["done"]:
                    entry = next(
                        (e for r in group.members if (e := self.world.entry(r, group.id, seq))),
                        None,
                    )
                    result.append(self._add(("collective", group.id, seq, 0), entry))
        return result

    def _vague(self, rank: int) -> list[Operation]:
        """Operations of a truncated dump that are pending, without it being known which they
        are."""
        by_pg = self.world.groups.by_pg[rank]
        if not self.world.groups.groups:
            return []  # no dump tells of any group: there is none to wait in
        for pg, status in self.world.dumps[rank].status.items():
            if status.enqueued != status.completed or by_pg.get(pg) in self._mixed:
                return [self._add(("p2p", by_pg.get(pg, 0), rank, -1), None)]
        return []

    @cached_property
    def _mixed(self) -> set[int | None]:
        """Groups for both collectives and transfers: equal numbers may be of different counters."""
        return {
            ident
            for rank, dump in self.world.dumps.items()
            for entry in dump.kept
            if entry.p2p_seq > 0 and entry.collective_seq > 0
            for ident in (self.world.groups.by_pg[rank].get(entry.pg),)
        }

    def _add(self, key: Key, entry: Entry | None) -> Operation:
        operation = self.operations.setdefault(key, Operation(key=key, group=key[1], entry=entry))
        operation.entry = operation.entry or entry
        return operation

    def _lead_on(self, operation: Operation) -> None:
        if operation.key[0] == "p2p":
            self._lead_to_partners(operation)
        else:
            self._lead_to_members(operation)

    def _lead_to_partners(self, operation: Operation) -> None:
        _, _, rank, _ = operation.key
        if operation.entry is None:
            return
        operation.partners = self.partners.of(rank, operation.entry)
        for partner in operation.partners:
            if partner.rank == rank or partner.state == "done":
                continue
            if partner.state in ("no-dump", "unknown"):
                operation.silent.append(partner.rank)
            elif partner.state == "pending":
                assert partner.entry is not None
                posted = self.operations.get(
                    ("p2p", operation.group, partner.rank, partner.entry.record)
                )
                held = posted in self.fronts[partner.rank]
                (operation.inside if held else operation.elsewhere).append(partner.rank)
            else:
                operation.absent.append(partner.rank)
        if operation.partners and all(p.state == "done" for p in operation.partners):
            operation.behind = [rank]
        if operation.absent or operation.elsewhere:
            operation.silent = []

    def _lead_to_members(self, operation: Operation) -> None:
        _, ident, seq, _ = operation.key
        members = self.world.members(ident, seq)
        operation.absent = [*members["absent"], *members["launching"]]
        waiting = [*members["pending"]]
        held = [rank for rank in waiting if operation in self.fronts[rank]]
        others = (r for r in waiting if operation not in self.fronts[r])
        operation.elsewhere = [rank for rank in others if self.fronts[rank]]
        done = [*members["done"], *members["retired"]]
        silent = [*members["no-dump"], *members["unknown"]]
        made = [self.world.calls(rank, ident) for rank in waiting] if done else []
        completed = {rank: self.world.calls(rank, ident) for rank in done}
        if otherwise := contradicting(seq, made, completed):
            # These are different operations: completion there says nothing about those that wait
            # here.
            operation.inside = [*held, *otherwise]
        elif done and self._telling(operation, waiting, silent):
            operation.behind = waiting
            operation.elsewhere = []
        elif not operation.absent and not operation.elsewhere:
            operation.inside = held
            calls = (self.world.entry(rank, ident, seq) for rank in held)
            # Calls that differ explain the wait of those inside.
            if not differ(call for call in calls if call is not None):
                operation.silent = silent

    def _telling(self, operation: Operation, waiting: list[int], silent: list[int]) -> bool:
        """Whether completion elsewhere says that those who wait need nothing from anybody."""
        if operation.entry is None or operation.absent:
            return False
        if operation.entry.needs_everyone:
            return True
        # In a rooted operation a member needs only its neighbours, which may be the silent ones.
        return not silent and len(waiting) <= most_odd(
            len(self.world.group(operation.group).members)
        )

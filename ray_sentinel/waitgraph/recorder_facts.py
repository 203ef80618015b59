"""What flight-recorder dumps show, as facts of the graph of waits.

A rank waits in its oldest pending operation, which waits for every member that has not enqueued it,
or is held in an older one. If all members are inside, it waits for all of them, and they form a
circle. A rank that has not completed what its peers completed waits for the dead that share its
unfinished work; if there are none, its device cannot go on, unless too many ranks lag like it.
"""

from __future__ import annotations

import msgspec

from ray_sentinel.evidence.flight_recorder.waits import Operation, Waits
from ray_sentinel.evidence.flight_recorder.world import Members
from ray_sentinel.evidence.minority import most_odd
from ray_sentinel.waitgraph.facts import (
    IN_OPERATION,
    Broken,
    Elsewhere,
    Mute,
    NotReached,
    WaitFact,
    WaitNode,
    WaitsFor,
    node_of_rank,
)
from ray_sentinel.waitgraph.solver import GraphRoot

_RECORDER = "flight-recorder"
_SHARES = "has unfinished work with"
"""``WaitsFor.how`` of a rank that may be held up by another in what its peers have completed."""
_ALL_INSIDE = "needs"
"""``WaitsFor.how`` of an operation and a member that is inside, where nobody is missing."""
_NOTHING_PENDING = "has nothing pending of its own"
_DEEPEST = 64
"""Most pending operations of one laggard that are looked at; later ones are not."""


class RecorderWaits:
    """The facts, with the ranks and operations of their nodes."""

    def __init__(self, waits: Waits) -> None:
        self._world, self._waits = waits.world, waits
        self._ranks: dict[WaitNode, int] = {}
        self._operations: dict[WaitNode, Operation] = {}
        self._several: set[WaitNode] = set()
        self.waited: dict[int, list[Operation]] = {}
        """Rank → the operations that wait for it."""
        self.laggards: dict[int, Operation] = {}
        """Ranks that have not completed what their peers have, although nobody holds them up."""
        self.facts: list[WaitFact] = []
        self._state_operations()
        self.absent_somewhere = {
            rank for operation in waits.operations.values() for rank in operation.absent
        }
        """Ranks that have not enqueued what another rank waits in."""
        self._state_ranks()
        self.facts = [msgspec.structs.replace(fact, witness=_RECORDER) for fact in self.facts]

    def members(self, root: GraphRoot) -> tuple[list[int], list[Operation]]:
        """The ranks and the operations of a root, in order."""
        operations = [self._operations[node] for node in root.members if node in self._operations]
        return (
            sorted(self._ranks[node] for node in root.members if node in self._ranks),
            sorted(operations, key=lambda operation: operation.key),
        )

    def _rank(self, rank: int) -> WaitNode:
        node = node_of_rank(rank)
        self._ranks[node] = rank
        return node

    def _node(self, operation: Operation) -> WaitNode:
        node = WaitNode("operation", ":".join(map(str, operation.key)))
        self._operations[node] = operation
        return node

    def _state_operations(self) -> None:
        """For whom each operation waits."""
        for operation in self._waits.operations.values():
            node = self._node(operation)
            for rank in operation.awaited:
                self.waited.setdefault(rank, []).append(operation)
                self.facts.append(NotReached(process=self._rank(rank), operation=node))
            for rank in operation.inside:
                self.facts.append(WaitsFor(who=node, awaited=self._rank(rank), how=_ALL_INSIDE))

    def _state_ranks(self) -> None:
        """In what, or for whom, each rank waits, and what is known of those that wait for
        nobody."""
        fronts = self._waits.fronts
        behind = {rank: one for rank, held in fronts.items() for one in held if rank in one.behind}
        dead = {rank for rank in self.absent_somewhere if not fronts.get(rank) or rank in behind}
        for rank in fronts.keys() | self.waited.keys():
            node = self._rank(rank)
            if rank in behind:
                self._state_laggard(node, behind[rank], dead)
            elif self._world.says_nothing(rank):
                self.facts.append(Mute(process=node, why="left no dump that says anything"))
            elif not fronts[rank]:
                inside = self._launching(rank)
                doing = f"is inside the launch of {inside}" if inside else _NOTHING_PENDING
                self.facts.append(Elsewhere(process=node, place="", doing=doing))
            for operation in () if rank in behind else fronts.get(rank, ()):
                at = self._node(operation)
                self.facts.append(WaitsFor(who=node, awaited=at, how=IN_OPERATION))

    def _launching(self, rank: int) -> str:
        """The call in which a rank is that would enqueue its operation; empty if there is none."""
        dump = self._world.dumps.get(rank)
        inside = (e for e in (dump.pending if dump else ()) if self._world.in_launch(rank, e))
        return next((self._world.title(rank, entry) for entry in inside), "")

    def _state_laggard(self, node: WaitNode, operation: Operation, dead: set[int]) -> None:
        """For whom a rank may wait that has not completed what its peers have.

        ``dead`` are ranks that others wait for and that wait for nobody.
        """
        rank = self._ranks[node]
        awaited: list[WaitNode] = []
        if rank not in dead:
            awaited = [self._rank(other) for other in sorted(self._sharing(rank, operation, dead))]
            if not awaited and self._lag_together(rank, operation):
                awaited = [self._all_behind(operation)]
        if not awaited:
            self.laggards[rank] = operation
            why = "has not completed what its peers have completed"
            self.facts.append(Broken(process=node, why=why))
        self.facts += [WaitsFor(who=node, awaited=at, how=_SHARES) for at in awaited]

    def _all_behind(self, operation: Operation) -> WaitNode:
        """The node of all that have not completed an operation."""
        node = WaitNode("several", ":".join(map(str, operation.key)))
        if node not in self._several:
            self._several.add(node)
            ranks = map(self._rank, operation.behind)
            self.facts += [WaitsFor(who=node, awaited=at, how=_SHARES) for at in ranks]
        return node

    def _sharing(self, rank: int, operation: Operation, dead: set[int]) -> set[int]:
        """The dead that share all of a laggard's unfinished work."""
        members = self._world.group(operation.group).members
        gone = {r for r in members if r not in self._world.dumps}
        found = ((set(operation.behind) & dead) | gone) - {rank}
        if operation.key[0] == "p2p":
            found = {p.rank for p in operation.partners} & (dead | gone)
        for states in self._unfinished(rank) if found else ():
            found &= {*states["pending"], *states["no-dump"]}
        return found

    def _lag_together(self, rank: int, operation: Operation) -> bool:
        """Whether a laggard is one of too many to be the exception, and none is alone in it."""
        members = self._world.group(operation.group).members
        return len(operation.behind) > most_odd(len(members)) and not any(
            states["pending"] == [rank] for states in self._unfinished(rank)
        )

    def _unfinished(self, rank: int) -> list[Members]:
        """The members of the collectives that are pending here and done elsewhere."""
        found = []
        for entry in self._world.dumps[rank].pending[:_DEEPEST]:
            group = self._world.group_of(rank, entry)
            if group is not None and not entry.p2p and entry.needs_everyone:
                members = self._world.members(group.id, entry.seq)
                if members["done"] and rank in members["pending"]:
                    found.append(members)
        return found

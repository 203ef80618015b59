"""What flight-recorder dumps show, as facts of the graph of waits.

A rank waits in its oldest pending operation, which waits for every member that has not enqueued it,
or is held in an older one. If all members are inside, it waits for all of them, and they form a
circle. A rank that has not completed what its peers completed cannot go on, because of its device.
"""

from __future__ import annotations

import msgspec

from ray_sentinel.evidence.flight_recorder.waits import Operation, Waits
from ray_sentinel.waitgraph.facts import (
    IN_OPERATION,
    Broken,
    Elsewhere,
    Mute,
    WaitFact,
    WaitNode,
    WaitsFor,
    node_of_rank,
    not_reached,
)
from ray_sentinel.waitgraph.solver import GraphRoot

_RECORDER = "flight-recorder"
_ALL_INSIDE = "needs"
"""``WaitsFor.how`` of an operation and a member that is inside, where nobody is missing."""
_NOTHING_PENDING = "has nothing pending of its own"


class RecorderWaits:
    """The facts, with the ranks and operations of their nodes."""

    def __init__(self, waits: Waits) -> None:
        self._world, self._waits = waits.world, waits
        self._ranks: dict[WaitNode, int] = {}
        self._operations: dict[WaitNode, Operation] = {}
        self.waited: dict[int, list[Operation]] = {}
        """Rank → the operations that wait for it."""
        self.laggards: dict[int, Operation] = {}
        """Ranks that have not completed what their peers have."""
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
                self.facts.append(not_reached(self._rank(rank), node))
            for rank in operation.inside:
                self.facts.append(WaitsFor(who=node, awaited=self._rank(rank), how=_ALL_INSIDE))

    def _state_ranks(self) -> None:
        """In what each rank waits, and what is known of those that wait for nobody."""
        fronts = self._waits.fronts
        self.laggards = {r: one for r, held in fronts.items() for one in held if r in one.behind}
        for rank in fronts.keys() | self.waited.keys():
            node = self._rank(rank)
            if rank in self.laggards:
                why = "has not completed what its peers have completed"
                self.facts.append(Broken(process=node, why=why))
            elif self._world.says_nothing(rank):
                self.facts.append(Mute(process=node, why="left no dump that says anything"))
            elif not fronts[rank]:
                inside = self._launching(rank)
                doing = f"is inside the launch of {inside}" if inside else _NOTHING_PENDING
                self.facts.append(Elsewhere(process=node, place="", doing=doing))
            for operation in () if rank in self.laggards else fronts.get(rank, ()):
                at = self._node(operation)
                self.facts.append(WaitsFor(who=node, awaited=at, how=IN_OPERATION))

    def _launching(self, rank: int) -> str:
        """The call in which a rank is that would enqueue its operation; empty if there is none."""
        dump = self._world.dumps.get(rank)
        inside = (e for e in (dump.pending if dump else ()) if self._world.in_launch(rank, e))
        return next((self._world.title(rank, entry) for entry in inside), "")

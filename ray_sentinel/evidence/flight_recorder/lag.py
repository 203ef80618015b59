"""Ranks that have not completed what their peers completed, and whether a dead peer explains
that."""

from __future__ import annotations

from ray_sentinel.evidence.flight_recorder.waits import Key, Operation
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.evidence.minority import most_odd

_MOST = 64
"""Most pending operations of one laggard that are looked at; later ones are not."""


class Lag:
    """Explains laggards by the dead that share their unfinished work."""

    def __init__(self, world: World) -> None:
        self._world = world

    def explain(self, rank: int, operation: Operation, dead: set[int]) -> list[int | Key]:
        """Whom a laggard waits for: the dead ranks that share all its unfinished work, or nobody.

        ``dead`` are ranks that others wait for and that wait for nobody.
        """
        if rank in dead:
            return []
        shared = self._shared(rank, operation, dead)
        if shared:
            return list(shared)
        group = self._world.group(operation.group)
        if len(operation.behind) <= most_odd(len(group.members)):
            return []
        if self._alone(rank):
            return []
        return [other for other in operation.behind if other != rank]

    def _shared(self, rank: int, operation: Operation, dead: set[int]) -> list[int]:
        members = self._world.group(operation.group).members
        behind = set(operation.behind)
        gone = {r for r in members if r not in self._world.dumps}
        candidates = ((behind & dead) | gone) - {rank}
        if operation.key[0] == "p2p":
            candidates = {p.rank for p in operation.partners} & (dead | gone)
        for ident, seq in self._lagging(rank):
            if not candidates:
                break
            states = self._world.members(ident, seq)
            candidates &= {*states["pending"], *states["no-dump"]}
        return sorted(candidates)

    def _lagging(self, rank: int) -> list[tuple[int, int]]:
        """Collectives that are pending here and done elsewhere."""
        result = []
        for entry in self._world.dumps[rank].pending[:_MOST]:
            group = self._world.group_of(rank, entry)
            if group is not None and not entry.p2p and entry.needs_everyone:
                members = self._world.members(group.id, entry.seq)
                if members["done"] and rank in members["pending"]:
                    result.append((group.id, entry.seq))
        return result

    def _alone(self, rank: int) -> bool:
        return any(
            self._world.members(ident, seq)["pending"] == [rank]
            for ident, seq in self._lagging(rank)
        )

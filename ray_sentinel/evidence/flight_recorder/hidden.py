"""Culprits for whom nobody waits yet, because those who would are held up by another culprit
first."""

from __future__ import annotations

from collections.abc import Container

from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.groups import some_ranks
from ray_sentinel.evidence.flight_recorder.peer_roles import Equals
from ray_sentinel.evidence.flight_recorder.waits import Waits
from ray_sentinel.evidence.flight_recorder.world import World
from ray_sentinel.evidence.sentences import OWN_CODE, has_not_come

_DEEPEST = 256
"""Most pending operations of one rank that are looked at; later ones are not."""


class Hidden:
    """Finds ranks that stopped by themselves behind the ones that are waited for."""

    def __init__(self, world: World, waits: Waits, equals: Equals) -> None:
        self._world = world
        self._waits = waits
        self._equals = equals
        self.remarks: list[str] = []

    def idle(self, known: Container[int]) -> dict[int, str]:
        """Ranks with nothing pending that have not made a call which others made and wait to
        execute.

        Nothing that is recorded holds such a rank. Empty if equal ranks for which nobody waits
        stand at the same point: then they all wait for something outside. Rank → reason.
        """
        free = set(self._waits.idle(known))
        behind = self._missing(free)
        return {
            rank: why
            for rank, why in behind.items()
            if not self._equals.stand_alike(rank, free - behind.keys())
        }

    def _missing(self, free: set[int]) -> dict[int, str]:
        """Which of these ranks are absent from an operation that another rank has queued."""
        reasons: dict[int, str] = {}
        seen: set[tuple[int, int]] = set()
        for rank, dump in self._world.dumps.items():
            for entry in dump.pending[:_DEEPEST] if free else ():
                group = self._world.group_of(rank, entry)
                if group is None or (group.id, entry.seq) in seen:
                    continue
                if self._world.in_launch(rank, entry):
                    continue
                if not entry.p2p:
                    seen.add((group.id, entry.seq))
                absent = free & self._absent(rank, group.id, entry)
                several = len(absent) > 1 and not entry.p2p
                if several and self._waits.outnumber(absent, group.id, entry.seq):
                    continue
                for other in absent:
                    reasons.setdefault(
                        other,
                        has_not_come(
                            self._world.title(rank, entry),
                            f"which rank {rank} has queued",
                            f"has nothing pending of its own: {OWN_CODE}",
                        ),
                    )
        return reasons

    def _absent(self, rank: int, ident: int, entry: Entry) -> set[int]:
        if not entry.p2p:
            return {*self._world.members(ident, entry.seq)["absent"]}
        partners = self._waits.partners.of(rank, entry)
        return {partner.rank for partner in partners if partner.state == "absent"}

    def held_back(self, known: Container[int]) -> dict[int, str]:
        """Ranks that wait, but stopped issuing calls earlier than that wait explains.

        The first and last rank often do host work of their own, such as logging: they are only
        mentioned. Rank → reason.
        """
        result: dict[int, str] = {}
        for rank, keys in self._waits.fronts.items():
            if rank in known or not keys:
                continue
            beyond = self._equals.stopped_early(rank)
            if beyond and rank in (self._world.groups.world[0], self._world.groups.world[-1]):
                self.remarks.append(
                    f"rank {rank} waits for the same as {some_ranks(beyond[:4])}, but has issued "
                    "less; the first and the last rank often do so, so it is not accused"
                )
            elif beyond:
                result[rank] = (
                    f"stopped issuing operations before rank {beyond[0]} did, which is in the same "
                    f"position and waits for the same: {OWN_CODE}, hidden behind another"
                )
        return result

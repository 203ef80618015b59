"""Culprits that nobody is held by, because those who would wait for them wait for another first."""

from __future__ import annotations

from collections.abc import Container

from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.equals import Equals
from ray_sentinel.evidence.flight_recorder.groups import say_ranks
from ray_sentinel.evidence.flight_recorder.waits import Waits, few
from ray_sentinel.evidence.flight_recorder.world import World

_DEEPEST = 256
"""Of a rank's pending operations, so many are looked at."""


class Hidden:
    """Looks for ranks that stopped of themselves behind the ones that are waited for."""

    def __init__(self, world: World, waits: Waits, equals: Equals) -> None:
        self._world = world
        self._waits = waits
        self._equals = equals
        self.remarks: list[str] = []

    def idle(self, known: Container[int]) -> dict[int, str]:
        """Ranks with nothing pending that have not made a call which others made and queue for.

        Nothing that is recorded holds such a rank. Empty where equals of it that nobody queues for
        stand where it stands: then they wait for something outside. Rank → reason.
        """
        free = {
            rank
            for rank, keys in self._waits.fronts.items()
            if not keys and rank not in known and not self._world.says_nothing(rank)
        }
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
                if group is None or (group.id, entry.seq) in seen or self._in_launch(rank, entry):
                    continue
                if not entry.p2p:
                    seen.add((group.id, entry.seq))
                absent = free & self._absent(rank, group.id, entry)
                if self._outnumbers(absent, group.id, entry):
                    continue
                for other in absent:
                    reasons.setdefault(
                        other,
                        f"has nothing pending and has not joined {entry.title} ({group.label} "
                        f"number {entry.seq}), which rank {rank} has queued: it stopped in its own "
                        "code",
                    )
        return reasons

    def _outnumbers(self, absent: set[int], ident: int, entry: Entry) -> bool:
        """Whether those that are in a call may have made one too many: more idle ones have not."""
        if entry.p2p or len(absent) < 2:
            return False
        return len(self._world.members(ident, entry.seq)["pending"]) < len(absent)

    def _in_launch(self, rank: int, entry: Entry) -> bool:
        group = self._world.group_of(rank, entry)
        assert group is not None
        return self._world.place(rank, group.id).of(entry.p2p).launching == entry.seq

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
                    f"rank {rank} has issued less than ranks {say_ranks(beyond[:4])}, which wait "
                    "for the same; the first and the last rank often do so, so it is not accused"
                )
            elif beyond:
                result[rank] = (
                    f"stopped issuing operations before rank {beyond[0]} did, which is in the same "
                    "position and waits for the same: it stopped in its own code, hidden behind "
                    "another"
                )
        return result

    def launching(self, known: Container[int]) -> dict[int, str]:
        """Ranks that wait, and whose host is besides inside a launch that does not return.

        A launch returns at once unless it connects the members or loads the kernel (at the first
        such call of a group) or the device's queue is full. It is not full where an innocent
        outside of any launch has run twice as far ahead (between two recorded calls, the ranks of
        different stages queue different amounts). Where many are in launches, something holds all.
        Rank → reason.
        """
        inside = {
            rank: entry
            for rank, keys in self._waits.fronts.items()
            if keys and (entry := self._open_call(rank)) is not None
        }
        if len(inside) > few(len(self._world.dumps)):
            return {}
        longest = max(
            (
                self._run_ahead(rank)
                for rank, keys in self._waits.fronts.items()
                if keys and rank not in inside and rank not in known
            ),
            default=0,
        )
        return {
            rank: f"is inside the launch of {entry.title}, which has not returned though other "
            "ranks have run further ahead: it stopped in its own code, hidden behind another"
            for rank, entry in inside.items()
            if rank not in known
            and 2 * self._run_ahead(rank) <= longest
            and self._made_before(rank, entry)
        }

    def _run_ahead(self, rank: int) -> int:
        """How many calls a rank has made since the oldest that is pending."""
        pending = self._world.dumps[rank].pending
        return pending[-1].record - pending[0].record if pending else 0

    def _open_call(self, rank: int) -> Entry | None:
        """The collective that a rank's latest call is still launching, if that is certain."""
        dump = self._world.dumps[rank]
        if dump.cut or not dump.pending:
            return None
        entry = dump.pending[-1]
        group = self._world.group_of(rank, entry)
        if group is None or entry.p2p or entry.p2p_seq > 0:
            # Where a group has two counters, they share one number, which then says little.
            return None
        progress = self._world.place(rank, group.id).collective
        return entry if progress.launching == entry.seq and not progress.evicted else None

    def _made_before(self, rank: int, entry: Entry) -> bool:
        """Whether the rank has completed a like call in this group, as far as its dump shows."""
        return any(
            other.done and other.pg == entry.pg and other.signature() == entry.signature()
            for other in self._world.history(rank)
        )

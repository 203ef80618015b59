"""Sends and receives: who the partner is, and how far it is with its half of the pair."""

from __future__ import annotations

import msgspec

from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.group_ids import Kind
from ray_sentinel.evidence.flight_recorder.groups import ProcessGroup
from ray_sentinel.evidence.flight_recorder.world import State, World

_OTHER = {"send": "recv", "recv": "send"}
_ENOUGH_PAIRS = 2


class Partner(msgspec.Struct, frozen=True):
    """The other end of one send or receive."""

    rank: int
    state: State
    entry: Entry | None = None
    """The partner's own record of the pair, where the operation is pending there."""


class Partners:
    """Matches sends with receives over all ranks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._global_titles = self._vote_on_titles()
        self.links = self._find_links()
        self._votes: dict[int, list[bool]] = {}
        self._made: dict[int, dict[tuple[int | None, int], list[str] | None]] = {}
        self._pending: dict[tuple[int, int], list[tuple[str, int, Entry, Entry]]] = {}

    def of(self, rank: int, entry: Entry) -> list[Partner]:
        """The states of both ends for an operation, or for every part of a batch."""
        group = self._world.group_of(rank, entry)
        if group is None:
            return []
        result = []
        for part in entry.transfers:
            peer = self.peer(rank, part, group)
            if peer is not None:
                result.append(self._partner(rank, entry, part, group, peer))
        return result

    def peer(self, rank: int, entry: Entry, group: ProcessGroup) -> int | None:
        """The partner's global rank. Titles count within the group or globally, by version."""
        if entry.peer is None or entry.me is None:
            return None
        within = group.positions.get(rank) == entry.me and entry.peer < len(group.members)
        overall = rank == entry.me and (entry.peer in group.positions or not group.closed)
        if within and not (overall and self._global_titles):
            return group.members[entry.peer]
        return entry.peer if overall else None

    def _vote_on_titles(self) -> bool:
        """Whether titles hold global ranks, by the entries that can mean only one of both."""
        overall = within = 0
        for rank, dump in self._world.dumps.items():
            for entry in dump.kept:
                group = self._world.group_of(rank, entry)
                for part in entry.transfers if group else ():
                    assert group is not None
                    if part.me is not None and group.positions.get(rank) != rank:
                        overall += part.me == rank
                        within += part.me == group.positions.get(rank)
        return overall > within

    def _partner(
        self, rank: int, entry: Entry, part: Entry, group: ProcessGroup, peer: int
    ) -> Partner:
        world = self._world
        if peer not in world.dumps:
            return Partner(peer, "no-dump")
        if world.dumps[peer].cut:
            return Partner(peer, self._state_by_counts(entry, group, peer))
        theirs = self._between(peer, group, _OTHER[part.op], rank)
        if self._aligned(rank, peer, group):
            return self._by_sequence(entry, theirs, group, peer)
        mine = [whole for whole, _ in self._between(rank, group, part.op, peer)]
        ahead = next((i for i, whole in enumerate(mine) if whole.record == entry.record), 0)
        if world.dumps[rank].from_start and world.dumps[peer].from_start:
            return self._by_count(rank, part, group, peer, len(mine) - ahead, theirs)
        if ahead < len(theirs):
            return Partner(peer, "pending", theirs[ahead][0])
        known = world.place(peer, group.id).p2p.enqueued is not None or world.dumps[peer].status
        return Partner(peer, "absent" if known else "unknown")

    def _state_by_counts(self, entry: Entry, group: ProcessGroup, peer: int) -> State:
        """The state of a partner whose latest entries are lost, by its counters alone, in a group
        of two."""
        progress = self._world.place(peer, group.id).p2p
        if len(group.members) == 2:
            if progress.enqueued is not None and entry.seq > progress.enqueued:
                return "absent"
            if progress.done is not None and entry.seq <= progress.done:
                return "done"
        return "unknown"

    def _by_sequence(
        self, entry: Entry, theirs: list[tuple[Entry, Entry]], group: ProcessGroup, peer: int
    ) -> Partner:
        for whole, _ in theirs:
            if whole.seq == entry.seq:
                return Partner(peer, "pending", whole)
        progress = self._world.place(peer, group.id).p2p
        if progress.enqueued is None:
            return Partner(peer, "unknown")
        if progress.launching == entry.seq:
            return Partner(peer, "launching")
        if entry.seq > progress.enqueued:
            return Partner(peer, "absent")
        pending = any(whole.seq == entry.seq for whole, _ in self._all(peer, group))
        if pending or progress.evicted:
            # The ring has lost it, or the parts of its batch.
            return Partner(peer, "unknown")
        return Partner(peer, "done" if self._mirrored(entry, peer, group) else "unknown")

    def _mirrored(self, entry: Entry, peer: int, group: ProcessGroup) -> bool:
        """Whether what the partner did under this number is the counterpart, as far as its dump
        shows it. Otherwise one of the two left out a transfer or made one more, and numbers do not
        match.
        """
        theirs = self._transfers(peer).get((group.id, entry.seq))
        needed = sorted(_OTHER.get(part.op, part.op) for part in entry.transfers)
        return theirs is None or theirs == needed

    def _transfers(self, rank: int) -> dict[tuple[int | None, int], list[str] | None]:
        """What a rank sent and received in all that its dump shows: (group, number) → operations,
        None for a batch without its parts."""
        if rank not in self._made:
            ident = self._world.groups.by_pg[rank]
            self._made[rank] = {
                (ident.get(entry.pg), entry.seq): None
                if entry.op == "coalesced" and not entry.parts
                else sorted(part.op for part in entry.transfers)
                for entry in self._world.history(rank)
                if entry.p2p
            }
        return self._made[rank]

    def _by_count(
        self,
        rank: int,
        part: Entry,
        group: ProcessGroup,
        peer: int,
        back: int,
        theirs: list[tuple[Entry, Entry]],
    ) -> Partner:
        """Match the n-th send with the n-th receive: both dumps begin at the first operation."""
        index = self._total(rank, group, part.op, peer) - back
        posted = self._total(peer, group, _OTHER[part.op], rank)
        done = posted - len(theirs)
        if index < done:
            return Partner(peer, "done")
        if index < posted:
            return Partner(peer, "pending", theirs[index - done][0])
        return Partner(peer, "absent")

    def _total(self, rank: int, group: ProcessGroup, op: str, peer: int) -> int:
        """How many sends to (receives from) a peer were enqueued in all."""
        by_pg = self._world.groups.by_pg[rank]
        numbers = {peer} if self._global_titles else {group.positions.get(peer)}
        recorded = sum(
            count
            for (pg, kind, number), count in self._world.dumps[rank].counts.items()
            if kind == op and number in numbers and by_pg.get(pg) == group.id
        )
        return recorded - self._launching(rank, group, op, peer)

    def _launching(self, rank: int, group: ProcessGroup, op: str, peer: int) -> int:
        launching = self._world.place(rank, group.id).p2p.launching
        return sum(
            part.op == op and self.peer(rank, part, group) == peer
            for entry in self._world.dumps[rank].pending
            if entry.p2p
            and entry.seq == launching
            and self._world.groups.by_pg[rank].get(entry.pg) == group.id
            for part in entry.transfers
        )

    def _between(
        self, rank: int, group: ProcessGroup, op: str, peer: int
    ) -> list[tuple[Entry, Entry]]:
        """A rank's pending sends to (receives from) a peer, in order: (operation, part)."""
        key = (rank, group.id)
        if key not in self._pending:
            launching = self._world.place(rank, group.id).p2p.launching
            self._pending[key] = [
                (part.op, -1 if peer_ is None else peer_, entry, part)
                for entry in self._world.dumps[rank].pending
                if entry.p2p
                and entry.seq != launching
                and self._world.groups.by_pg[rank].get(entry.pg) == group.id
                for part in entry.transfers
                for peer_ in (self.peer(rank, part, group),)
            ]
        return [(whole, part) for o, p, whole, part in self._pending[key] if o == op and p == peer]

    def _aligned(self, rank: int, peer: int, group: ProcessGroup) -> bool:
        """Whether both ends count the same operations: they alone talk to each other here.

        Beyond groups of two this is believed only where numbers pending at both ends agree, for
        this pair or for all pairs of its sort: dumps may show too little to know all links.
        """
        if len(group.members) == 2:
            return True
        common = self._common(rank, peer, group)
        if common is not None:
            return common
        votes = self._pair_votes(group)
        return len(votes) >= _ENOUGH_PAIRS and all(votes)

    def _common(self, rank: int, peer: int, group: ProcessGroup) -> bool | None:
        """Whether numbers pending at both ends are each other's counterparts; None if there is
        none."""
        places = group.positions
        if rank not in places or peer not in places:
            # A damaged dump may name a partner outside of its own group.
            return None
        for one, other in ((rank, peer), (peer, rank)):
            if self.links.get(group.kind, {}).get(places[one], set()) - {places[other]}:
                return False
        mine = {e.seq: e.op for e, _ in self._all(rank, group)}
        theirs = {e.seq: e.op for e, _ in self._all(peer, group)}
        both = mine.keys() & theirs.keys()
        if not both:
            return None
        return all(_OTHER.get(mine[seq], mine[seq]) == theirs[seq] for seq in both)

    def _pair_votes(self, group: ProcessGroup) -> list[bool]:
        if group.id not in self._votes:
            pairs = {
                (min(rank, peer), max(rank, peer))
                for rank in group.members
                if rank in self._world.dumps
                for _, part in self._all(rank, group)
                if (peer := self.peer(rank, part, group)) in self._world.dumps
                and peer in group.positions
            }
            found = (self._common(*pair, group) for pair in sorted(pairs))
            self._votes[group.id] = [vote for vote in found if vote is not None]
        return self._votes[group.id]

    def _all(self, rank: int, group: ProcessGroup) -> list[tuple[Entry, Entry]]:
        self._between(rank, group, "", -1)
        return [(whole, part) for _, _, whole, part in self._pending[rank, group.id]]

    def _find_links(self) -> dict[Kind, dict[int, set[int]]]:
        """Which positions talk to which, in all groups of a kind together."""
        links: dict[Kind, dict[int, set[int]]] = {}
        for rank, dump in self._world.dumps.items():
            for entry in dump.kept:
                group = self._world.group_of(rank, entry) if entry.p2p else None
                for part in entry.transfers if group else ():
                    assert group is not None
                    peer = self.peer(rank, part, group)
                    if peer in group.positions:
                        assert peer is not None
                        ends = group.positions[rank], group.positions[peer]
                        table = links.setdefault(group.kind, {})
                        table.setdefault(ends[0], set()).add(ends[1])
                        table.setdefault(ends[1], set()).add(ends[0])
        return links

"""Everything that is known about the job, and what each rank has done in one collective."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from ray_sentinel.evidence.flight_recorder.batches import settle
from ray_sentinel.evidence.flight_recorder.dump import RankDump
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.groups import ProcessGroup, ProcessGroups, identify
from ray_sentinel.evidence.flight_recorder.progress import (
    CounterProgress,
    GroupPosition,
    Table,
    measure,
)

State = Literal["absent", "launching", "pending", "retired", "done", "unknown", "no-dump"]
"""How far a member is with an operation. ``absent``: it has not enqueued it. ``launching``: it is
inside the call that would. ``retired``: the operation is off the watchdog's list without having
been seen to complete."""

_NOTHING = GroupPosition(CounterProgress(), CounterProgress())


class Members(msgspec.Struct):
    """The members of one collective by what they have done in it."""

    by_state: dict[State, list[int]]

    def __getitem__(self, state: State) -> list[int]:
        return self.by_state.get(state, [])


class World:
    """The dumps of one job, with its groups identified and its counters read."""

    def __init__(
        self,
        dumps: Mapping[int, RankDump],
        world_size: int | None = None,
        history: Callable[[int], list[Entry]] | None = None,
    ) -> None:
        self._history = history
        ordered = dict(sorted(dumps.items()))
        self.groups: ProcessGroups = identify(ordered, world_size)
        self.dumps = settle(ordered, self.groups)
        self.table: Table = measure(self.dumps, self.groups)
        self._members: dict[tuple[int, int], Members] = {}
        self._entries: dict[int, dict[int, dict[int, Entry]]] = {}

    def history(self, rank: int) -> list[Entry]:
        """Every operation in a rank's dump, or only the kept part if the dump cannot be read
        again."""
        return (self._history(rank) if self._history else []) or self.dumps[rank].kept

    @property
    def unrecorded_p2p(self) -> bool:
        """Whether ranks send and receive without a record: gloo only counts such calls."""
        return any(
            entry.library == "gloo" and entry.op_id != entry.collective_seq
            for dump in self.dumps.values()
            for entry in dump.kept
        )

    def says_nothing(self, rank: int) -> bool:
        """Whether there is no dump, or one without a single entry or counter."""
        dump = self.dumps.get(rank)
        return dump is None or not (dump.pending or dump.last_done or dump.status)

    def group(self, ident: int) -> ProcessGroup:
        """The group with this id."""
        return self.groups.groups[ident]

    def group_of(self, rank: int, entry: Entry) -> ProcessGroup | None:
        """The group of a rank's entry."""
        ident = self.groups.by_pg[rank].get(entry.pg)
        return None if ident is None else self.group(ident)

    def place(self, rank: int, ident: int) -> GroupPosition:
        """How far a rank came in a group; unknown where no data is available."""
        return self.table.get((rank, ident), _NOTHING)

    def in_launch(self, rank: int, entry: Entry) -> bool:
        """Whether a rank is inside the call that would enqueue its entry."""
        group = self.group_of(rank, entry)
        return group is not None and self.place(rank, group.id).of(entry.p2p).launching == entry.seq

    def title(self, rank: int, entry: Entry) -> str:
        """A rank's entry, for people."""
        group = self.group_of(rank, entry)
        return group.numbered(entry.seq, entry.title) if group else entry.title

    def state(self, rank: int, ident: int, seq: int) -> State:
        """What one member has done in one collective."""
        if rank not in self.dumps:
            return "no-dump"
        progress = self.place(rank, ident).collective
        if progress.launching == seq:
            return "launching"
        if progress.enqueued is None:
            return "unknown"
        if seq > progress.enqueued:
            return "absent"
        if progress.done is not None and seq <= progress.done:
            return "done"
        if progress.retired is not None and seq <= progress.retired:
            return "retired"
        return "pending"

    def members(self, ident: int, seq: int) -> Members:
        """What every member has done in one collective."""
        key = (ident, seq)
        if key not in self._members:
            by_state: dict[State, list[int]] = {}
            for rank in self.group(ident).members:
                by_state.setdefault(self.state(rank, ident, seq), []).append(rank)
            if by_state.get("absent"):
                # Retired but not possible to complete: it has timed out.
                by_state.setdefault("pending", []).extend(by_state.pop("retired", []))
            self._members[key] = Members(by_state)
        return self._members[key]

    def entry(self, rank: int, ident: int, seq: int) -> Entry | None:
        """A rank's own record of a collective, if it is pending or the last completed one."""
        return self.calls(rank, ident).get(seq)

    def calls(self, rank: int, ident: int) -> dict[int, Entry]:
        """A rank's own records of a group's collectives that are pending or the last completed one,
        by number."""
        if rank not in self.dumps:
            return {}
        if rank not in self._entries:
            by_pg = self.groups.by_pg[rank]
            table: dict[int, dict[int, Entry]] = {}
            for entry in self.dumps[rank].kept:
                if not entry.p2p and entry.pg in by_pg:
                    table.setdefault(by_pg[entry.pg], {})[entry.seq] = entry
            self._entries[rank] = table
        return self._entries[rank].get(ident, {})

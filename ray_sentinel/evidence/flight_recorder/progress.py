"""How far each rank came in each group: what it enqueued, what it completed.

``pg_status`` keeps one pair of numbers per group for two counters, collectives and point-to-point,
whichever moved last; gloo writes a third (``op_id``) into it. Which one a number belongs to shows
in the group's entries, and where it does not show, it is unknown.
"""

from __future__ import annotations

import msgspec

from ray_sentinel.evidence.flight_recorder.dump import RankDump
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.group_ids import Kind
from ray_sentinel.evidence.flight_recorder.groups import ProcessGroups
from ray_sentinel.evidence.flight_recorder.tables import GroupStatus


class CounterProgress(msgspec.Struct, kw_only=True):
    """One rank's progress in one group by one counter. None means unknown, never zero."""

    enqueued: int | None = None
    done: int | None = None
    launching: int | None = None
    """The number of an operation that was recorded by a call that has not returned."""
    retired: int | None = None
    """The number up to which operations left the watchdog's list without having been seen to
    complete."""
    evicted: bool = False
    """Operations between done and enqueued have been overwritten in the ring."""


class GroupPosition(msgspec.Struct):
    """One rank's progress in one group, by both counters."""

    collective: CounterProgress
    p2p: CounterProgress

    def of(self, p2p: bool) -> CounterProgress:
        """The progress by the counter of transfers (``p2p``) or of collectives."""
        return self.p2p if p2p else self.collective


class _Seen(msgspec.Struct):
    """The counters that entries show, over all groups of one kind."""

    collective: tuple[int, int] | None = None
    p2p: tuple[int, int] | None = None
    third: bool = False
    """The group's status counts by gloo's third counter, which includes sends and receives that
    gloo does not record."""

    def add(self, entry: Entry) -> None:
        if entry.collective_seq > 0 or not entry.p2p:
            self.collective = _widen(self.collective, entry.collective_seq)
        if entry.p2p_seq > 0:
            self.p2p = _widen(self.p2p, entry.p2p_seq)
        if entry.library == "gloo" and entry.op_id != entry.collective_seq:
            self.third = True


def _widen(span: tuple[int, int] | None, value: int) -> tuple[int, int]:
    return (value, value) if span is None else (min(span[0], value), max(span[1], value))


Table = dict[tuple[int, int], GroupPosition]
"""(Rank, group id) → how far the rank is in the group."""


def measure(dumps: dict[int, RankDump], groups: ProcessGroups) -> Table:
    """How far every rank came in every group that it knows."""
    entries: dict[tuple[int, int], list[Entry]] = {}
    seen: dict[Kind, _Seen] = {}
    status: dict[tuple[int, int], GroupStatus] = {}
    for rank, dump in dumps.items():
        by_pg = groups.by_pg[rank]
        for entry in dump.kept:
            if (ident := by_pg.get(entry.pg)) is not None:
                entries.setdefault((rank, ident), []).append(entry)
                seen.setdefault(groups.groups[ident].kind, _Seen()).add(entry)
        for pg, value in dump.status.items():
            if (ident := by_pg.get(pg)) is not None:
                status[rank, ident] = value
    table: Table = {}
    for key in {**entries, **status}:
        mine = sorted(entries.get(key, ()), key=lambda entry: entry.record)
        if dumps[key[0]].cut:
            # Its latest entries are lost, so only the counters show where it stands.
            mine = []
        place = _from_entries(mine, dumps[key[0]])
        if key in status:
            like_it = seen.get(groups.groups[key[1]].kind, _Seen())
            _add_status(place, mine, status[key], like_it, dumps[key[0]])
        table[key] = place
    _find_first_launches(table, entries, status)
    for rank, dump in dumps.items():
        tied = bool(dump.status) and all(pg in groups.by_pg[rank] for pg in dump.status)
        if dump.from_start or tied:
            _never_used(table, rank, groups)
    return table


def _find_first_launches(
    table: Table,
    entries: dict[tuple[int, int], list[Entry]],
    status: dict[tuple[int, int], GroupStatus],
) -> None:
    """A group's very first call that has not returned: nothing is counted as enqueued yet.

    Believed where another member's count shows that this library counts at all.
    """
    counting = {ident for (_, ident), value in status.items() if value.enqueued is not None}
    for key, mine in entries.items():
        first = mine[0]
        if (
            len(mine) == 1
            and first.seq == 1
            and not first.done
            and key in status
            and status[key].enqueued is None
            and key[1] in counting
        ):
            progress = table[key].of(first.p2p)
            progress.launching, progress.enqueued = 1, 0


def _never_used(table: Table, rank: int, groups: ProcessGroups) -> None:
    """A group that a gapless recording, or the status of all groups used, does not show."""
    for group in groups.of(rank):
        if (rank, group.id) not in table:
            none, no_p2p = CounterProgress(enqueued=0, done=0), CounterProgress(enqueued=0, done=0)
            table[rank, group.id] = GroupPosition(none, no_p2p)


def _from_entries(entries: list[Entry], dump: RankDump) -> GroupPosition:
    """What the entries alone say."""
    place = GroupPosition(CounterProgress(), CounterProgress())
    for p2p in (False, True):
        mine = [entry for entry in entries if entry.p2p == p2p]
        progress = place.of(p2p)
        progress.enqueued = max((entry.seq for entry in mine), default=None)
        done = [entry.seq for entry in mine if entry.done]
        waiting = [entry.seq for entry in mine if not entry.done and not entry.retired]
        retired = [entry.seq for entry in mine if not entry.done and entry.retired]
        progress.done = max(done, default=None)
        progress.retired = max(retired, default=None)
        if waiting + retired and not p2p:
            # One group's collectives run in their order, so what precedes the first is done,
            # unless the ring has lost it: ``_add_status`` knows.
            progress.done = max(progress.done or 0, min(waiting + retired) - 1)
        elif dump.from_start and progress.done is None:
            progress.done = 0
    if entries:
        # Every entry carries both counters as they stood when it was made.
        carried = max(entry.collective_seq for entry in entries)
        place.collective.enqueued = max(place.collective.enqueued or 0, carried)
    return place


def _add_status(
    place: GroupPosition, entries: list[Entry], status: GroupStatus, seen: _Seen, dump: RankDump
) -> None:
    """Refine what the entries say by the group's status."""
    if seen.third or (entries and entries[-1].library == "gloo"):
        # Enqueuing and recording are one step in gloo, so its entries say all.
        return
    if status.enqueued is not None:
        launching = _launching(entries[-1], entries, status.enqueued) if entries else False
        if launching:
            last = entries[-1]
            progress = place.of(last.p2p)
            progress.launching, progress.enqueued = last.seq, last.seq - 1
        elif not entries or status.enqueued != entries[-1].seq:
            _raise_to(place, status.enqueued, seen)
    if status.completed is not None and (entries or seen.collective or seen.p2p):
        _completed(place, entries, status.completed, seen, lossy=not dump.from_start)


def _launching(last: Entry, entries: list[Entry], enqueued: int) -> bool:
    """Whether the group's last entry was recorded by a call that has not returned.

    The status then still names what was enqueued before it: its own counter less one, or the other
    counter as it stood.
    """
    if last.done or enqueued == last.seq:
        return False
    other = last.collective_seq if last.p2p else last.p2p_seq
    before = entries[-2].seq if len(entries) > 1 else last.seq - 1
    return enqueued == last.seq - 1 or enqueued in (other or -1, before)


def _raise_to(place: GroupPosition, enqueued: int, seen: _Seen) -> None:
    p2p = _counter_of(enqueued, seen)
    if p2p is not None:
        progress = place.of(p2p)
        progress.enqueued = max(progress.enqueued or 0, enqueued)


def _completed(
    place: GroupPosition, entries: list[Entry], value: int, seen: _Seen, *, lossy: bool
) -> None:
    p2p = _counter_of(value, seen)
    if p2p is None:
        return
    progress = place.of(p2p)
    if progress.enqueued is None or value > progress.enqueued:
        return
    mine = [entry for entry in entries if entry.p2p == p2p]
    waiting = [entry.seq for entry in mine if not entry.done]
    shown = max((entry.seq for entry in mine if entry.done), default=0)
    upto = min(waiting) - 1 if waiting else progress.enqueued
    if p2p and waiting:
        # Pairs complete in any order: the entries are all there is to say.
        return
    progress.done = max(shown, value)
    progress.evicted = lossy and progress.done < upto
    if not lossy:
        progress.done = max(progress.done, upto) if waiting else progress.done


def _counter_of(value: int, seen: _Seen) -> bool | None:
    """Whether a number counts point-to-point (True) or collectives (False); None if unclear."""
    if seen.p2p is None:
        return False
    if seen.collective is None:
        return True
    to_p2p = _distance(value, seen.p2p)
    to_collective = _distance(value, seen.collective)
    if to_p2p * 2 < to_collective:
        return True
    if to_collective * 2 < to_p2p:
        return False
    return None


def _distance(value: int, span: tuple[int, int]) -> int:
    return max(span[0] - value, value - span[1], 0)

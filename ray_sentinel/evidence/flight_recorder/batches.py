"""Parts of batches whose closing entry is not in the dump.

The parts of a batch stay "scheduled" for ever; only the closing entry, recorded right after them,
is followed. A dump of active operations alone drops the closing entry once it has completed and
keeps the parts, which then look like sends and receives that never end.
"""

from __future__ import annotations

import msgspec

from ray_sentinel.evidence.flight_recorder.dump import RankDump
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.group_ids import Kind
from ray_sentinel.evidence.flight_recorder.groups import ProcessGroups


def settle(dumps: dict[int, RankDump], groups: ProcessGroups) -> dict[int, RankDump]:
    """The dumps, with the parts of finished batches removed from the pending operations."""
    batched = _batched_kinds(dumps, groups)
    finished = _finished_at_both_ends(dumps, groups)
    result = {}
    for rank, dump in dumps.items():
        last = max((entry.record for entry in dump.kept), default=-1)
        over = [
            entry
            for entry in dump.pending
            if entry.p2p
            and (
                (rank, entry.record) in finished
                or (
                    _lacks_its_end(entry, _kind(rank, entry, groups) in batched)
                    and _is_over(entry, dump, last)
                )
            )
        ]
        result[rank] = _without(dump, over) if over else dump
    return result


def _batched_kinds(dumps: dict[int, RankDump], groups: ProcessGroups) -> set[Kind | None]:
    """Kinds of groups in which sends and receives come in batches.

    Every transfer raises ``op_id``, a batch as a whole raises ``p2p_seq_id``.
    """
    return {
        _kind(rank, entry, groups)
        for rank, dump in dumps.items()
        for entry in dump.kept
        if entry.p2p
        and (entry.op == "coalesced" or 0 < entry.collective_seq + entry.p2p_seq < entry.op_id)
    } - {None}


def _finished_at_both_ends(
    dumps: dict[int, RankDump], groups: ProcessGroups
) -> set[tuple[int, int]]:
    """(Rank, record) of transfers that both ends have posted and both ends' counts have passed.

    Batches of one transfer look like single ones. But a transfer that both ends have posted moves,
    unless the device or the network stands still, and then the counts stand still too.
    """
    sides: dict[tuple[int, int | None, int | None], dict[str, list[tuple[int, int]]]] = {}
    for rank, dump in dumps.items():
        for entry in dump.pending:
            ident = groups.by_pg[rank].get(entry.pg)
            if ident is None or entry.op not in ("send", "recv") or not _passed(entry, dump):
                continue
            ends = (entry.me, entry.peer) if entry.op == "send" else (entry.peer, entry.me)
            side = sides.setdefault((ident, *ends), {"send": [], "recv": []})
            side[entry.op].append((rank, entry.record))
    return {
        item
        for side in sides.values()
        if len(side["send"]) == len(side["recv"])
        for item in (*side["send"], *side["recv"])
    }


def _passed(entry: Entry, dump: RankDump) -> bool:
    """Whether the last completed transfer of the group is this one or a later one.

    In a group of both kinds the count may be that of the collectives: believed where it is near.
    """
    status = dump.status.get(entry.pg)
    completed = status.completed if status else None
    if completed is None or completed < entry.seq:
        return False
    if entry.collective_seq == 0:
        return True
    return completed <= entry.seq + _WINDOW and abs(completed - entry.collective_seq) > _WINDOW


def _kind(rank: int, entry: Entry, groups: ProcessGroups) -> Kind | None:
    ident = groups.by_pg[rank].get(entry.pg)
    return None if ident is None else groups.groups[ident].kind


def _lacks_its_end(entry: Entry, batched: bool) -> bool:
    return entry.open_batch or (batched and entry.op in ("send", "recv"))


def _is_over(entry: Entry, dump: RankDump, last: int) -> bool:
    """Whether the closing entry was recorded, completed and dropped.

    It was recorded if anything was recorded later or if the batch counts as enqueued. Batches
    complete in order, so one above the last completed has not. The parts of a batch need no such
    doubt: while it was pending, its closing entry would be in the dump.
    """
    status = dump.status.get(entry.pg)
    enqueued = status.enqueued if status else None
    completed = status.completed if status else None
    above = completed is not None and completed < entry.seq <= completed + _WINDOW
    if above and not entry.open_batch:
        return False
    return entry.record < last or (enqueued is not None and enqueued == entry.seq)


_WINDOW = 64
"""Largest difference between two values of one counter; where they differ by more, one of them is
of the group's other counter."""


def _without(dump: RankDump, over: list[Entry]) -> RankDump:
    records = {entry.record for entry in over}
    last_done = dict(dump.last_done)
    for entry in over:
        key = (entry.pg, True)
        if key not in last_done or last_done[key].record < entry.record:
            last_done[key] = msgspec.structs.replace(
                entry, done=True, op="coalesced", parts=entry.transfers
            )
    pending = [entry for entry in dump.pending if entry.record not in records]
    return msgspec.structs.replace(dump, pending=pending, last_done=last_done)

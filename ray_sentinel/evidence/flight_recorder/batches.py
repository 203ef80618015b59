"""Parts of batches whose closing entry is not in the dump.

The parts of a batch stay "scheduled" for ever; only the closing entry, recorded right after them,
is followed. A dump of active operations alone drops the closing entry once it has completed and
keeps the parts, which then look like sends and receives that never end.
"""

from __future__ import annotations

import msgspec

from ray_sentinel.evidence.flight_recorder.dump import RankDump
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.groups import Groups
from ray_sentinel.evidence.flight_recorder.ties import Kind


def settle(dumps: dict[int, RankDump], groups: Groups) -> dict[int, RankDump]:
    """The dumps, with the parts of finished batches taken out of what is pending."""
    batched = _batched_kinds(dumps, groups)
    result = {}
    for rank, dump in dumps.items():
        last = max((entry.record for entry in dump.pending), default=-1)
        last = max(last, max((entry.record for entry in dump.last_done.values()), default=-1))
        over = [
            entry
            for entry in dump.pending
            if entry.p2p
            and _lacks_its_end(entry, _kind(rank, entry, groups) in batched)
            and _is_over(entry, dump, last)
        ]
        result[rank] = _without(dump, over) if over else dump
    return result


def _batched_kinds(dumps: dict[int, RankDump], groups: Groups) -> set[Kind | None]:
    """Kinds of groups in which sends and receives come in batches.

    Every transfer raises ``op_id``, a batch as a whole raises ``p2p_seq_id``.
    """
    return {
        _kind(rank, entry, groups)
        for rank, dump in dumps.items()
        for entry in [*dump.pending, *dump.last_done.values()]
        if entry.p2p
        and (entry.op == "coalesced" or 0 < entry.collective_seq + entry.p2p_seq < entry.op_id)
    } - {None}


def _kind(rank: int, entry: Entry, groups: Groups) -> Kind | None:
    ident = groups.by_pg[rank].get(entry.pg)
    return None if ident is None else groups.groups[ident].kind


def _lacks_its_end(entry: Entry, batched: bool) -> bool:
    return entry.open_batch or (batched and entry.op in ("send", "recv"))


def _is_over(entry: Entry, dump: RankDump, last: int) -> bool:
    """Whether the closing entry was recorded, completed and dropped.

    It was recorded if anything was recorded later or if the batch counts as enqueued. Batches
    complete in order, so one above the last completed has not.
    """
    status = dump.status.get(entry.pg)
    enqueued = status.enqueued if status else None
    completed = status.completed if status else None
    if completed is not None and completed < entry.seq <= completed + _WINDOW:
        return False
    return entry.record < last or (enqueued is not None and enqueued == entry.seq)


_WINDOW = 64
"""A completed count this near below is the same counter, not the group's other one."""


def _without(dump: RankDump, over: list[Entry]) -> RankDump:
    records = {entry.record for entry in over}
    last_done = dict(dump.last_done)
    for entry in over:
        key = (entry.pg, True)
        if key not in last_done or last_done[key].record < entry.record:
            last_done[key] = msgspec.structs.replace(
                entry, done=True, op="coalesced", parts=entry.parts or (entry,)
            )
    pending = [entry for entry in dump.pending if entry.record not in records]
    return msgspec.structs.replace(dump, pending=pending, last_done=last_done)

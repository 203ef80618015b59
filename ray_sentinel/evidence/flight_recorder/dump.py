"""One rank's dump, reduced to what the reasoning needs: what is pending, and how far the rank came.

A dump holds up to thousands of finished operations; only the last of each counter is kept, so that
a thousand ranks fit into memory. ``history`` parses the rest again for the few ranks that need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ray_sentinel.evidence.flight_recorder.entry import Entry, number, parse
from ray_sentinel.evidence.flight_recorder.load import RawDump, load
from ray_sentinel.evidence.flight_recorder.tables import (
    GroupConfig,
    GroupStatus,
    read_configs,
    read_status,
)
from ray_sentinel.evidence.flight_recorder.versions import modern

_BatchKey = tuple[int, bool, int]
"""(Group, whether point-to-point, sequence): what all entries of one batch have in common."""


class RankDump(msgspec.Struct, kw_only=True):
    """The content of one rank's dump."""

    rank: int
    configs: dict[str, GroupConfig]
    status: dict[int, GroupStatus]
    """The status of each group, by the rank's own creation number of the group."""
    pending: list[Entry]
    """Operations that are not known to be done, in the order of issue."""
    last_done: dict[tuple[int, bool], Entry]
    """(Group number, whether point-to-point) → the last operation that is done."""
    counts: dict[tuple[int, str, int], int]
    """(Group number, operation, the peer's number in the title) → how many such sends or receives
    there are in all. Empty where the dump does not begin at the first operation."""
    from_start: bool
    """The dump begins at the first operation and skips none."""
    first_record: int | None
    cut: bool = False
    """The end of the dump is missing: the file was truncated."""
    blind: bool = False
    """The dump's version leaves out what would be needed to accuse anybody."""
    problem: str = ""

    @property
    def kept(self) -> list[Entry]:
        """The operations that are known: the last done of each counter, then the pending."""
        return [*self.last_done.values(), *self.pending]


def read(rank: int, data: bytes) -> RankDump:
    """Parse one dump. Raises InputError if nothing in it is usable."""
    return reduced(rank, load(data))


def history(data: bytes) -> list[Entry]:
    """Every operation in the dump in the order of issue, with batches folded."""
    entries = [
        entry
        for place, raw in enumerate(modern(entries_of(load(data).data))[0])
        if (entry := entry_of(raw, place))
    ]
    entries.sort(key=lambda entry: entry.record)
    return fold(entries)


def reduced(rank: int, raw: RawDump) -> RankDump:
    """The part of a dump's tree that is kept."""
    entries = entries_of(raw.data)
    rows, blind = modern(entries)
    open_rows, closed_rows = _split(rows)
    closed_batches = _closed_batches(rows) if open_rows else set()
    open_entries: list[Entry] = []
    parts: dict[_BatchKey, list[Entry]] = {}
    for entry in (entry for place, row in open_rows if (entry := entry_of(row, place))):
        closed = _key(entry) in closed_batches
        (parts.setdefault(_key(entry), []) if closed else open_entries).append(entry)
    open_entries.sort(key=lambda entry: entry.record)
    done_entries = [_with_parts(entry, parts) for row in closed_rows if (entry := entry_of(row, 0))]
    folded = fold(open_entries)
    last_done = {(entry.pg, entry.p2p): entry for entry in done_entries}
    for entry in folded:
        if entry.done:
            _keep_later(last_done, entry)
    pending = [entry for entry in folded if not entry.done]
    from_start = _from_start(rows) and not raw.problem
    first = next((number(row.get("record_id")) for row in rows), None)
    problem = raw.problem or _damage(raw.data, len(entries))
    return RankDump(
        rank=rank,
        configs=read_configs(raw.data.get("pg_config")),
        status=read_status(raw.data.get("pg_status")),
        pending=pending,
        last_done=last_done,
        counts=_counts(rows) if from_start else {},
        from_start=from_start,
        first_record=first,
        cut=bool(problem),
        blind=blind,
        problem=problem,
    )


def entries_of(data: Mapping[str, Any]) -> list[Any]:
    """The rows of a dump that are operations."""
    rows = data.get("entries")
    if not isinstance(rows, list):
        return []
    if all(type(row) is dict and "profiling_name" in row for row in rows):
        return rows
    return [row for row in rows if type(row) is dict and "profiling_name" in row]


def _damage(data: Mapping[str, Any], usable: int) -> str:
    """What is wrong with the entries, for people; empty if nothing is."""
    given = data.get("entries", [])
    if not isinstance(given, list):
        return f"holds a {type(given).__name__} where its entries belong; let the rank dump again"
    if usable < len(given):
        return f"has {len(given) - usable} entries that are no operations: the others were used"
    return ""


def _split(rows: list[Any]) -> tuple[list[tuple[int, Any]], Iterable[Any]]:
    """Rows that may be pending (with their place), and the last completed row of each counter.

    Called for every row of every rank: comprehensions on purpose.
    """
    open_rows = [(place, row) for place, row in enumerate(rows) if row.get("state") != "completed"]
    try:
        closed = {
            (row["pg_id"], row["is_p2p"]): row for row in rows if row.get("state") == "completed"
        }
    except (KeyError, TypeError):
        # Fields of another version, or not hashable: slow, but every row is looked at.
        open_rows = list(enumerate(rows))
        closed = {}
    if len(open_rows) > 64:
        open_rows, retired = _drop_retired(open_rows)
        return open_rows, [*closed.values(), *retired]
    return open_rows, closed.values()


def _key(entry: Entry) -> _BatchKey:
    return entry.pg, entry.p2p, entry.seq


def _with_parts(entry: Entry, parts: Mapping[_BatchKey, list[Entry]]) -> Entry:
    """A completed operation; if it closes a batch, with the parts, which tell what was called."""
    mine = parts.get(_key(entry), ()) if entry.op == "coalesced" else ()
    return msgspec.structs.replace(entry, parts=tuple(mine)) if mine else entry


def _closed_batches(rows: list[Any]) -> set[_BatchKey]:
    """The batches whose closing entry has completed."""
    ends = [
        row
        for row in rows
        if row.get("state") == "completed" and str(row.get("profiling_name")).endswith("coalesced")
    ]
    return {_key(entry) for row in ends if (entry := entry_of(row, 0)) and entry.op == "coalesced"}


def _drop_retired(
    rows: list[tuple[int, Any]],
) -> tuple[list[tuple[int, Any]], list[Any]]:
    """gloo never says "completed": take its retired rows out in bulk, but the last per group."""
    keep: list[tuple[int, Any]] = []
    last: dict[Any, Any] = {}
    for place, row in rows:
        title = row.get("profiling_name")
        pg = row.get("pg_id")
        if (
            row.get("retired") is True
            and type(title) is str
            and title.startswith("gloo:")
            and type(pg) is int
        ):
            last[pg] = row
        else:
            keep.append((place, row))
    return keep, list(last.values())


def entry_of(row: Any, place: int) -> Entry | None:
    """``parse``; None also for a row with numbers too large to be plausible."""
    try:
        return parse(row, place)
    except (OverflowError, ValueError):
        return None


def _keep_later(last: dict[tuple[int, bool], Entry], entry: Entry) -> None:
    key = (entry.pg, entry.p2p)
    if key not in last or last[key].record < entry.record:
        last[key] = entry


def fold(entries: list[Entry]) -> list[Entry]:
    """Entries of one batch as one operation, with the state of its closing entry.

    All parts carry one sequence number; the parts themselves stay "scheduled" for ever, and the
    closing ``coalesced`` entry, recorded last, is what the watchdog follows.
    """
    batches: dict[_BatchKey, list[Entry]] = {}
    for entry in entries:
        batches.setdefault(_key(entry), []).append(entry)
    result = []
    for batch in batches.values():
        end = batch[-1]
        if len(batch) == 1:
            result.append(end)
        elif end.op == "coalesced":
            result.append(msgspec.structs.replace(end, parts=tuple(batch[:-1])))
        else:
            result.append(_without_end(batch))
    result.sort(key=lambda entry: entry.record)
    return result


def _without_end(batch: list[Entry]) -> Entry:
    """A batch whose closing entry is not in the dump: still being put together, or dropped."""
    last = batch[-1]
    return msgspec.structs.replace(
        last,
        op="coalesced",
        me=None,
        peer=None,
        parts=tuple(batch),
        open_batch=True,
        done=all(entry.done for entry in batch),
        retired=all(entry.retired for entry in batch),
    )


def _from_start(rows: list[Any]) -> bool:
    """Whether record ids run 0, 1, 2, ...: nothing overwritten, nothing left out."""
    if not rows:
        return False
    first, last = number(rows[0].get("record_id")), number(rows[-1].get("record_id"))
    return first == 0 and last == len(rows) - 1


def _counts(rows: list[Any]) -> dict[tuple[int, str, int], int]:
    counts: dict[tuple[int, str, int], int] = {}
    for row in rows:
        if row.get("is_p2p") is False:
            continue
        if (entry := entry_of(row, 0)) and entry.p2p and entry.peer is not None:
            key = (entry.pg, entry.op, entry.peer)
            counts[key] = counts.get(key, 0) + 1
    return counts

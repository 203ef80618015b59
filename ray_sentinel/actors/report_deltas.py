"""Reports that say only what has changed. Pure.

From one report of an agent to its next most stays the same: names, who is there, what is idle. So
the next report contains only those fields of a record that differ from the last one. What changes
in all ranks of a node at once, such as their CPU time, is sent in columns, so that a field's name
comes once. The fields are taken from the record types: none has to be added here.

The agent builds on a report only if its receipt says that the coordinator has it (``Receipt.held``,
which a coordinator that knows no deltas does not set), and only on the last one that it sent: after
one without a receipt it sends a whole one. The coordinator keeps the last report that it accepted
from each node. If that is a different one, because it was restarted meanwhile, it accepts nothing,
and the agent sends the whole report at once. So whatever is lost, doubled or overtaken on the way,
what is accepted is what was sent.

Compressing a report with the last one as the dictionary would save a third, but zlib releases the
interpreter's lock for each: on a busy machine reports waited for seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict, fields, force_setattr, replace

from ray_sentinel.actors.messages import AgentReport, Receipt, pack_masked, unpack
from ray_sentinel.model.metrics import CollectorStatus
from ray_sentinel.model.progress import (
    ProcessState,
    Progress,
    RankSnapshot,
    RayProcess,
    Snapshot,
)

MARK = b"\xc1"
"""The first byte of a delta: no MessagePack begins with it."""
T = TypeVar("T")
Columns = TypeVar("Columns")


def _record_of(kind: type, suffix: str, left_out: Collection[str], columns: bool) -> Any:
    """A record type with the fields of another, in which fields that are not set are not sent."""
    row: Any = tuple
    found = [
        (field.name, (row[field.type, ...] if columns else field.type) | UnsetType, UNSET)
        for field in fields(kind)
        if field.name not in left_out
    ]
    return msgspec.defstruct(
        kind.__name__ + suffix, found, frozen=True, kw_only=True, omit_defaults=True
    )


_RING = "recent_step_seconds"
if TYPE_CHECKING:
    ReportPart: TypeAlias = Any
    SnapshotPart: TypeAlias = Any
    RankColumns: TypeAlias = Any
    ProcessColumns: TypeAlias = Any
    ProgressColumns: TypeAlias = Any
    CollectorColumns: TypeAlias = Any
    RayProcessColumns: TypeAlias = Any
else:
    ReportPart = _record_of(AgentReport, "Part", {"snapshot"}, False)
    SnapshotPart = _record_of(Snapshot, "Part", {"ranks", "collectors", "ray_processes"}, False)
    RankColumns = _record_of(RankSnapshot, "Columns", {"process", "progress"}, True)
    ProcessColumns = _record_of(ProcessState, "Columns", (), True)
    ProgressColumns = _record_of(Progress, "Columns", {_RING}, True)
    CollectorColumns = _record_of(CollectorStatus, "Columns", (), True)
    RayProcessColumns = _record_of(RayProcess, "Columns", (), True)


class RankChanges(msgspec.Struct, frozen=True, array_like=True):
    """How the ranks of a snapshot differ from those of the one before; all rows belong to
    ``places``."""

    count: int
    whole: tuple[tuple[int, RankSnapshot], ...]
    """The place and the complete record of each rank that is new or is another process."""
    places: tuple[int, ...]
    rows: RankColumns
    process: ProcessColumns
    attached: tuple[int, ...]
    """The places of the ranks with progress, to which ``progress`` and ``rings`` belong."""
    progress: ProgressColumns
    rings: tuple[tuple[int, tuple[float, ...]], ...]
    """How many of a rank's last step durations stay, and those that follow."""


class RecordChanges(msgspec.Struct, Generic[T, Columns], frozen=True, array_like=True):
    """How the collectors, or Ray's processes, of a snapshot differ from those of the one before."""

    count: int
    whole: tuple[tuple[int, T], ...]
    """The place and the complete record of each that is new or another one."""
    places: tuple[int, ...]
    rows: Columns


class ReportDelta(msgspec.Struct, frozen=True, array_like=True):
    """A report, to be completed from an earlier one of the same agent."""

    node: str
    incarnation: str
    sequence: int
    base: int
    """The sequence number of that earlier report."""
    report: ReportPart
    snapshot: SnapshotPart
    ranks: RankChanges
    collectors: RecordChanges[CollectorStatus, CollectorColumns]
    ray_processes: RecordChanges[RayProcess, RayProcessColumns]


def delta_of(report: AgentReport, last: AgentReport) -> ReportDelta:
    """The delta that completes ``last``, of the same agent, to ``report``."""
    new, old = report.snapshot, last.snapshot
    return ReportDelta(
        node=new.node.id,
        incarnation=report.incarnation,
        sequence=new.sequence,
        base=old.sequence,
        report=_part(ReportPart, report, last),
        snapshot=_part(SnapshotPart, new, old),
        ranks=_ranks(new.ranks, old.ranks),
        collectors=RecordChanges(
            *_rows(CollectorColumns, new.collectors, old.collectors, attrgetter("name"))
        ),
        ray_processes=RecordChanges(
            *_rows(RayProcessColumns, new.ray_processes, old.ray_processes, attrgetter("process"))
        ),
    )


def read_message(data: bytes) -> AgentReport | ReportDelta:
    """What an agent sent. Raises msgspec.DecodeError if it is neither a report nor a delta."""
    if data.startswith(MARK):
        return unpack(data[len(MARK) :], ReportDelta)
    return unpack(data, AgentReport)


def completed(delta: ReportDelta, last: AgentReport) -> AgentReport | None:
    """The report that a delta stands for, given the last accepted one of its node; None if it
    builds on another one."""
    old = last.snapshot
    if delta.incarnation != last.incarnation:
        return None
    if delta.sequence == old.sequence:
        return last  # it has come twice
    if delta.base != old.sequence:
        return None
    try:
        snapshot = replace(
            old,
            **_set(delta.snapshot),
            ranks=_with_ranks(delta.ranks, old.ranks),
            collectors=_with(old.collectors, delta.collectors),
            ray_processes=_with(old.ray_processes, delta.ray_processes),
        )
    except (IndexError, ValueError, TypeError, AttributeError):
        return None  # no agent sends such a delta
    return replace(last, **_set(delta.report), snapshot=snapshot)


class DeltaSender:
    """What one agent sends. Each message is followed by ``answered``, or by the next message where
    no receipt came. Used by one thread."""

    def __init__(self) -> None:
        self._last: AgentReport | None = None
        """The report that was sent last."""
        self._held = self._whole = False
        """Whether the coordinator has that report (``_held``), and whether it was sent whole."""

    def message(self, report: AgentReport) -> bytes:
        """The message to send now, its secrets masked."""
        last, self._last = self._last, report
        self._whole, self._held = last is None or not self._held, False
        if last is None or self._whole:
            return pack_masked(report)
        return MARK + pack_masked(delta_of(report, last))

    def answered(self, receipt: Receipt) -> bytes:
        """What has to be sent at once if the coordinator does not have what the last message builds
        on: the same report, whole. The receipt says nothing else in that case. Empty if the message
        was accepted."""
        if self._last is None:
            return b""
        self._held = bool(receipt.held) and receipt.held == self._last.snapshot.sequence
        if self._held or self._whole:
            return b""
        self._whole = True
        return pack_masked(self._last)


# What an agent sends.


def _part(kind: Any, new: object, old: object) -> Any:
    changed = {}
    for name in kind.__struct_fields__:
        value = getattr(new, name)
        if value != getattr(old, name):
            changed[name] = value
    return kind(**changed)


def _columns(kind: Any, new: Sequence[object], old: Sequence[object]) -> Any:
    """The columns of the fields that differ in at least one record."""
    if not new:
        return kind()
    names = kind.__struct_fields__
    rows = attrgetter(*names)
    one = zip(*map(rows, new), strict=True)
    other = zip(*map(rows, old), strict=True)
    return kind(
        **{
            name: values
            for name, values, before in zip(names, one, other, strict=True)
            if values != before
        }
    )


def _rows(
    kind: Any, new: Sequence[T], old: Sequence[T], same: Any
) -> tuple[int, tuple[tuple[int, T], ...], tuple[int, ...], Any]:
    """How many there are, those that differ in identity from the one at their place before, and the
    places and columns of those that are the same and have changed."""
    known = min(len(new), len(old))
    others = [place for place in range(known) if new[place] != old[place]]
    places = tuple(place for place in others if same(new[place]) == same(old[place]))
    whole = sorted({*others, *range(known, len(new))} - set(places))
    columns = _columns(kind, [new[at] for at in places], [old[at] for at in places])
    return len(new), tuple((place, new[place]) for place in whole), places, columns


def _ranks(new: Sequence[RankSnapshot], old: Sequence[RankSnapshot]) -> RankChanges:
    count, whole, places, rows = _rows(RankColumns, new, old, _same_rank)
    told = [(new[at].progress, old[at].progress) for at in places]
    attached = [(one, other) for one, other in told if one is not None and other is not None]
    return RankChanges(
        count=count,
        whole=whole,
        places=places,
        rows=rows,
        process=_columns(
            ProcessColumns, [new[at].process for at in places], [old[at].process for at in places]
        ),
        attached=tuple(at for at in places if new[at].progress is not None),
        progress=_columns(
            ProgressColumns, [one for one, _ in attached], [other for _, other in attached]
        ),
        rings=tuple(_ring(one, other) for one, other in attached),
    )


def _same_rank(seen: RankSnapshot) -> object:
    return seen.rank.process, seen.progress is None


def _ring(new: Progress, old: Progress) -> tuple[int, tuple[float, ...]]:
    ring, before = new.recent_step_seconds, old.recent_step_seconds
    fresh = max(0, new.steps_recorded - old.steps_recorded)
    kept = min(len(ring) - fresh, len(before))
    if kept > 0 and before[len(before) - kept :] == ring[:kept]:
        return kept, ring[kept:]
    return 0, ring


# What the coordinator rebuilds from it.


def _set(part: Any) -> dict[str, Any]:
    return {name: value for name, value in asdict(part).items() if value is not UNSET}


def _filled(columns: dict[str, Any], old: Sequence[Any]) -> Sequence[Any]:
    """The records, updated by the columns. Raises ValueError if the columns do not belong to
    them."""
    if not columns:
        return old
    # Copies that nobody else has yet; column by column it takes half of the time.
    made = [replace(one) for one in old]
    for name, column in columns.items():
        for one, value in zip(made, column, strict=True):
            force_setattr(one, name, value)
    return made


def _with(old: tuple[T, ...], changes: Any) -> tuple[T, ...]:
    if _are_the_same(old, changes):
        return old
    filled = _filled(_set(changes.rows), [old[place] for place in changes.places])
    return _placed(old, changes, filled)


def _are_the_same(old: Sequence[object], changes: Any) -> bool:
    return not (changes.places or changes.whole) and changes.count == len(old)


def _placed(old: Sequence[T], changes: Any, filled: Sequence[T]) -> tuple[T, ...]:
    """The new records: ``old`` with those at changed places replaced. Raises IndexError if there is
    no such place."""
    found = list(old[: changes.count])
    for place, one in zip(changes.places, filled, strict=True):
        found[place] = one
    for place, one in changes.whole:
        found[place : place + 1] = [one]
    if len(found) != changes.count:
        raise IndexError(changes.count)
    return tuple(found)


def _with_ranks(changes: RankChanges, old: tuple[RankSnapshot, ...]) -> tuple[RankSnapshot, ...]:
    if _are_the_same(old, changes):
        return old
    before = [old[place] for place in changes.places]
    columns = _set(changes.rows)
    columns["process"] = _filled(_set(changes.process), [one.process for one in before])
    if changes.attached:
        known: list[Any] = [old[place].progress for place in changes.attached]
        told = _set(changes.progress)
        rings = zip(known, changes.rings, strict=True)
        told[_RING] = [
            one.recent_step_seconds[-kept:] + fresh if kept else fresh
            for one, (kept, fresh) in rings
        ]
        progress = dict(zip(changes.attached, _filled(told, known), strict=True))
        columns["progress"] = map(progress.get, changes.places)
    return _placed(old, changes, _filled(columns, before))

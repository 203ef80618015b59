"""A dump in the form that is sent between nodes: what the reasoning needs, about a hundredth of the
bytes.

A dump of 2,000 operations is a megabyte and more; no single process should read that of a thousand
ranks every few seconds. So each node reads its own ranks' dumps and sends this form. Everything
below ``evidence`` that accepts a dump's bytes accepts these as well, with the same result.

The form is ours. A mark with its version, then MessagePack of three parts, each packed by zlib:

- the result of ``dump.read`` for the dump (or why it cannot be read);
- every operation, as columns: what recurs (group, call, sizes, state) is written once and counted,
  numbers are differences to the one before, in 64 bits, all first bytes first;
- those of a version before 2.0 of which only the times of the calls are compared; else empty.

A dump that is only judged is smaller (``Form``) and has version 2: the ranks of each group are runs
of equal steps. Written out, the ranks of a job of thousands would be most of what is unpacked for
every rank. The event log keeps these dumps, so versions that were written once are always read.
"""

from __future__ import annotations

import math
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder import dump as whole
from ray_sentinel.evidence.flight_recorder.dump import RankDump
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.load import RawDump, load
from ray_sentinel.evidence.flight_recorder.tables import GroupConfig, GroupStatus
from ray_sentinel.evidence.flight_recorder.versions import modern

VERSION = 1
PASSING = 2
"""The version of what is only judged."""
_NAME = b"ray-sentinel recorder "
MARK = _NAME + b"%d\n" % VERSION
_PASSING_MARK = _NAME + b"%d\n" % PASSING
Form = Literal["whole", "judged", "brief"]
"""How much of a dump: everything; what the reasoning about a hang or a failure reads, which is not
when each finished call was made and how long it took; only the operations that ``read`` returns."""
MAX_UNPACKED = 128 << 20
"""Most bytes of one part once unpacked; a file with a larger one is refused."""
_PIECE = 1 << 16
"""Bytes of a part that are unpacked at a time where they are only counted."""
_MOST_RANKS = MAX_UNPACKED // 8
"""Of all groups in a dump: as many as one part may have written out."""
_UNKNOWN = -(2**63)
"""What stands in a column where the dump does not tell: no field is as large (``entry.BEYOND``)."""

_RUN_BYTES = 40
"""Bytes of memory for each rank that the runs of a group are written out to."""

Timed = tuple[Entry, float]
"""An operation, and the milliseconds that its device spent in it; NaN where that was not
measured."""
_Runs = tuple[tuple[int, int, int], ...]
"""Ranks, as the first of a run, the step to each next one, and how many they are."""


class _Kind(NamedTuple):
    """What operations have in common: the fields of ``Entry`` that are not running numbers."""

    pg: int
    group: tuple[str, str]
    p2p: bool
    op: str
    peer: int | None
    library: str
    me: int | None
    numels: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[tuple[str, ...], tuple[str, ...]]
    done: bool
    retired: bool
    started: bool


class _Head(msgspec.Struct, array_like=True):
    """A ``RankDump``, with its keys and its lists of ranks in forms that MessagePack has."""

    error: str = ""
    """Why nothing of the dump can be used; empty where it can."""
    configs: list[tuple[str, str, str, bytes | _Runs | None]] = []
    status: list[tuple[int, int | None, int | None]] = []
    pending: list[Entry] = []
    last_done: list[Entry] = []
    counts: list[tuple[int, str, int, int]] = []
    from_start: bool = False
    first_record: int | None = None
    cut: bool = False
    blind: bool = False
    problem: str = ""


class _Columns(msgspec.Struct, array_like=True):
    """Operations, in the order of the dump."""

    kinds: list[_Kind]
    kind: bytes
    """For each operation, its place in ``kinds``. The columns below hold their fields likewise."""
    record: bytes
    collective_seq: bytes
    p2p_seq: bytes
    op_id: bytes
    created_ns: bytes
    duration: bytes
    """The milliseconds of each operation, as 64-bit floating point."""


def is_reduced(data: bytes) -> bool:
    """Whether these bytes are of this form, of whatever version."""
    return data[: len(_NAME)] == _NAME


def is_readable(data: bytes) -> bool:
    """Whether these bytes are of this form, of a version that this release reads."""
    return data[: len(MARK)] in (MARK, _PASSING_MARK)


def reduce(data: bytes, form: Form = "whole") -> bytes:
    """A dump (pickle or JSON) in this form. One that cannot be read becomes the error that says so.

    Raises InputError if it holds something that cannot be written.
    """
    try:
        try:
            raw = load(data)
        except InputError as error:
            return _written(_Head(error=str(error)), b"", b"")
        if form == "brief":
            return _passing(raw, b"")
        rows = whole.entries_of(raw.data)
        kept = modern(rows)[0]
        if form == "judged":
            return _passing(raw, _pack(_columns(_untimed(kept))))
        rest = b"" if len(kept) == len(rows) else _pack(_columns(_timed(rows)))
        return _written(_head(raw, _differences), _pack(_columns(_timed(kept))), rest)
    except (OverflowError, UnicodeError) as error:
        raise InputError(f"holds what no recorder writes ({error})") from error


class SharedDump(bytes):
    """This form, as several ranks have it: read once, for as long as it lives. Who reads it changes
    nothing of it, as for the ranks of a group (``_shared_ranks``)."""

    _read: RankDump | str | None = None
    _history: list[Entry] | str | None = None

    def read(self, rank: int) -> RankDump:
        """``read`` for one of the ranks. Raises InputError."""
        if self._read is None:
            try:
                self._read = read(rank, bytes(self))
            except InputError as error:
                self._read = str(error)
        if isinstance(self._read, str):
            raise InputError(self._read)
        return msgspec.structs.replace(self._read, rank=rank)

    def history(self) -> list[Entry]:
        """``history`` for any of the ranks. Raises InputError."""
        if self._history is None:
            try:
                self._history = history(bytes(self))
            except InputError as error:
                self._history = str(error)
        if isinstance(self._history, str):
            raise InputError(self._history)
        return self._history


def shared(dumps: Mapping[int, bytes]) -> dict[int, bytes]:
    """The same dumps, of which those that several ranks have are read once."""
    times = Counter(dumps.values())
    known = {data: SharedDump(data) for data, count in times.items() if count > 1}
    return {rank: known.get(data, data) for rank, data in dumps.items()}


def weight(data: bytes, most: int) -> int:
    """Bytes of memory that a dump in this form asks for, before any object is made of them: what
    its parts unpack to, and the ranks that its groups are written out to. Counting ends once there
    are more than ``most``. Raises InputError."""
    total = 0
    for part in _parts(data):
        unpacking, left = zlib.decompressobj(), part
        while left and not unpacking.eof and total <= most:
            try:
                total += len(unpacking.decompress(left, _PIECE))
            except zlib.error as error:
                raise InputError(f"is damaged ({error}); take the dump again") from error
            left = unpacking.unconsumed_tail
    if total > most:
        return total
    head: _Head = _unpack(_parts(data)[0], _Head)
    runs = (run for *_, ranks in head.configs if isinstance(ranks, tuple) for run in ranks)
    return total + sum(_RUN_BYTES * max(count, 0) for *_, count in runs)


def without_operations(data: bytes) -> bytes:
    """The same form without the operations that succeeded; the rank's history is then unknown."""
    parts = _parts(data)
    return data[: len(MARK)] + msgspec.msgpack.encode((parts[0], b"", b""))


def read(rank: int, data: bytes) -> RankDump:
    """The content of a dump, from its own bytes or from this form. Raises InputError."""
    if isinstance(data, SharedDump):
        return data.read(rank)
    if not is_reduced(data):
        return whole.read(rank, data)
    head = _unpack(_parts(data)[0], _Head)
    if head.error:
        raise InputError(head.error)
    return RankDump(
        rank=rank,
        configs=_configs(head),
        status={pg: GroupStatus(enqueued, completed) for pg, enqueued, completed in head.status},
        pending=head.pending,
        last_done={(entry.pg, entry.p2p): entry for entry in head.last_done},
        counts={(pg, op, peer): count for pg, op, peer, count in head.counts},
        from_start=head.from_start,
        first_record=head.first_record,
        cut=head.cut,
        blind=head.blind,
        problem=head.problem,
    )


def history(data: bytes) -> list[Entry]:
    """Every operation in the order of issue, with batches folded; empty if the form has none.

    Raises InputError.
    """
    if isinstance(data, SharedDump):
        return data.history()
    if not is_reduced(data):
        return whole.history(data)
    part = _parts(data)[1]
    entries = [entry for entry, _ in _rows(_unpack(part, _Columns))] if part else []
    entries.sort(key=lambda entry: entry.record)
    return whole.fold(entries)


def operations(data: bytes) -> Iterator[Timed]:
    """Every operation as in the dump, with batches not folded. Raises InputError."""
    if not is_reduced(data):
        yield from _timed(whole.entries_of(load(data).data))
        return
    head, history_, rest = _parts(data)
    if error := _unpack(head, _Head).error:
        raise InputError(error)
    if part := rest or history_:
        yield from _rows(_unpack(part, _Columns))


def _head(raw: RawDump, packed: Callable[[tuple[int, ...]], bytes | _Runs]) -> _Head:
    # The caller knows the rank: the bytes of a dump do not contain it.
    dump = whole.reduced(-1, raw)
    return _Head(
        configs=[
            (key, c.name, c.desc, None if c.ranks is None else packed(c.ranks))
            for key, c in dump.configs.items()
        ],
        status=[(pg, s.enqueued, s.completed) for pg, s in dump.status.items()],
        pending=dump.pending,
        last_done=list(dump.last_done.values()),
        counts=[(*key, count) for key, count in dump.counts.items()],
        from_start=dump.from_start,
        first_record=dump.first_record,
        cut=dump.cut,
        blind=dump.blind,
        problem=dump.problem,
    )


def _configs(head: _Head) -> dict[str, GroupConfig]:
    told = [ranks for *_, ranks in head.configs if isinstance(ranks, tuple)]
    if sum(max(count, 0) for runs in told for *_, count in runs) > _MOST_RANKS:
        raise InputError(f"is damaged: its groups have more than {_MOST_RANKS} ranks")
    return {
        key: GroupConfig(name, desc, None if ranks is None else _shared_ranks(ranks))
        for key, name, desc, ranks in head.configs
    }


@lru_cache(maxsize=1 << 14)
def _shared_ranks(packed: bytes | _Runs) -> tuple[int, ...]:
    # Every member lists the same ranks: a thousand ranks then share one tuple.
    if isinstance(packed, bytes):
        return tuple(_numbers(packed))
    return tuple(first + step * place for first, step, count in packed for place in range(count))


def _in_runs(ranks: Sequence[int]) -> _Runs:
    """
    >>> _in_runs((0, 1, 2, 3, 8, 16, 24, 5))
    ((0, 1, 4), (8, 8, 3), (5, 1, 1))
    """
    runs: list[tuple[int, int, int]] = []
    for rank in ranks:
        first, step, count = runs[-1] if runs else (rank, 1, 0)
        ahead = rank - first - step * (count - 1)
        if count > 1 and ahead == step:
            runs[-1] = (first, step, count + 1)
        elif count == 1 and ahead > 0:
            runs[-1] = (first, ahead, 2)
        else:
            runs.append((rank, 1, 1))
    return tuple(runs)


def _untimed(rows: Iterable[Any]) -> Iterator[Timed]:
    for entry, _ in _timed(rows):
        entry.created_ns = None
        yield entry, math.nan


def _timed(rows: Iterable[Any]) -> Iterator[Timed]:
    for place, row in enumerate(rows):
        if (entry := whole.entry_of(row, place)) is not None:
            yield entry, _milliseconds(row.get("duration_ms"))


def _milliseconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _columns(rows: Iterable[Timed]) -> _Columns:
    kinds: dict[tuple[Any, ...], int] = {}
    entries: list[Entry] = []
    places: list[int] = []
    durations = array("d")
    for entry, duration in rows:
        entries.append(entry)
        places.append(kinds.setdefault(_kind(entry), len(kinds)))
        durations.append(duration)
    groups = [entry.pg for entry in entries]
    created = [_UNKNOWN if e.created_ns is None else e.created_ns for e in entries]
    return _Columns(
        kinds=list(map(_Kind._make, kinds)),
        kind=_differences(places),
        record=_differences([entry.record for entry in entries]),
        collective_seq=_differences([entry.collective_seq for entry in entries], groups),
        p2p_seq=_differences([entry.p2p_seq for entry in entries], groups),
        op_id=_differences([entry.op_id for entry in entries], groups),
        created_ns=_differences(created),
        duration=_by_byte(durations),
    )


def _kind(entry: Entry) -> tuple[Any, ...]:
    """The fields of the entry's ``_Kind``."""
    # Of each operation of each rank: attrgetter() takes three times as long.
    return (
        entry.pg,
        entry.group,
        entry.p2p,
        entry.op,
        entry.peer,
        entry.library,
        entry.me,
        entry.numels,
        entry.dtypes,
        entry.done,
        entry.retired,
        entry.started,
    )


def _rows(columns: _Columns) -> Iterator[Timed]:
    places = _numbers(columns.kind)
    durations: array[float] = array("d")
    durations.frombytes(_in_order(columns.duration))
    if not all(0 <= place < len(columns.kinds) for place in places):
        raise InputError("is damaged: it counts what it does not hold")
    groups = [columns.kinds[place].pg for place in places]
    running = (
        _numbers(columns.record),
        _numbers(columns.collective_seq, groups),
        _numbers(columns.p2p_seq, groups),
        _numbers(columns.op_id, groups),
        _numbers(columns.created_ns),
    )
    if {len(places), len(durations)} != {len(places), *map(len, running)}:
        raise InputError("is damaged: its columns differ in length")
    common = [kind._asdict() for kind in columns.kinds]
    for place, duration, record, seq, p2p_seq, op_id, created in zip(
        places, durations, *running, strict=True
    ):
        entry = Entry(
            **common[place],
            record=record,
            collective_seq=seq,
            p2p_seq=p2p_seq,
            op_id=op_id,
            created_ns=None if created == _UNKNOWN else created,
        )
        yield entry, duration


def _differences(values: Sequence[int], groups: Sequence[int] | None = None) -> bytes:
    """Each number less the one before it (of its group), modulo 2**64."""
    before: dict[int, int] = {}
    found = array("q")
    for value, group in zip(values, groups or [0] * len(values), strict=True):
        found.append(_wrapped(value - before.get(group, 0)))
        before[group] = value
    return _by_byte(found)


def _numbers(packed: bytes, groups: Sequence[int] | None = None) -> list[int]:
    differences = array("q")
    differences.frombytes(_in_order(packed))
    groups = groups if groups is not None else [0] * len(differences)
    if len(groups) != len(differences):
        raise InputError("is damaged: its columns differ in length")
    before: dict[int, int] = {}
    found = []
    for difference, group in zip(differences, groups, strict=True):
        value = before[group] = _wrapped(before.get(group, 0) + difference)
        found.append(value)
    return found


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _by_byte(values: array[Any]) -> bytes:
    """Little-endian, all first bytes, then all second bytes, ...: alike ones are packed best."""
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    data = values.tobytes()
    return b"".join(data[place::8] for place in range(8))


def _in_order(data: bytes) -> bytes:
    count, odd = divmod(len(data), 8)
    if odd:
        raise InputError("is damaged: a column is cut off")
    result = bytearray(len(data))
    for place in range(8):
        result[place::8] = data[place * count : (place + 1) * count]
    if sys.byteorder == "big":
        values = array("q")
        values.frombytes(bytes(result))
        values.byteswap()
        return values.tobytes()
    return bytes(result)


def _written(head: _Head, history_: bytes, rest: bytes) -> bytes:
    return MARK + msgspec.msgpack.encode((_pack(head), history_, rest))


def _passing(raw: RawDump, history_: bytes) -> bytes:
    return _PASSING_MARK + msgspec.msgpack.encode((_pack(_head(raw, _in_runs)), history_, b""))


def _parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    if not is_readable(data):
        found = data[len(_NAME) : len(_NAME) + 8].split(b"\n")[0].decode("ascii", "replace")
        raise InputError(f"has version {found} of the reduced form, and this release reads 1 and 2")
    try:
        return msgspec.msgpack.decode(data[len(MARK) :], type=tuple[bytes, bytes, bytes])
    except msgspec.DecodeError as error:
        raise InputError(f"is damaged ({error}); take the dump again") from error


def _pack(value: _Head | _Columns) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value), 6)


def _unpack(part: bytes, kind: type[Any]) -> Any:
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(part, MAX_UNPACKED)
        if unpacking.unconsumed_tail:
            raise InputError(f"unpacks to more than {MAX_UNPACKED >> 20} MiB")
        return msgspec.msgpack.decode(data, type=kind)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is damaged ({error}); take the dump again") from error

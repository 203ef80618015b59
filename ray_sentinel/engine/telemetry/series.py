"""The series of each node over the last half hour, and the events that its collectors reported.

They are stored once, for the rules and for the embedded history: the samples that a node takes
together share their times, and are a row of one block of numbers. The size of all nodes' series
together is bounded in bytes. The absolute value of a counter means nothing (it may date from boot);
only its rise since it was first seen counts.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import compress, islice, pairwise
from math import isfinite
from weakref import ReferenceType

import msgspec

from ray_sentinel.config import CoordinatorConfig
from ray_sentinel.engine.telemetry.sample_columns import (
    SampleColumns,
    SeriesOfName,
    most_rows,
    names_beside,
)
from ray_sentinel.model.metrics import Event, Labels
from ray_sentinel.model.progress import Snapshot
from ray_sentinel.model.samples import (
    Floats,
    SampleBatch,
    SeriesKey,
    StreamName,
    TableHeld,
)

MOST_BYTES = CoordinatorConfig().series_bytes
"""Most bytes of all series: half an hour of 100 nodes with 400 series each, or of 320 nodes where
old samples are thinned."""
EVERY = 4.0
"""Least seconds between two samples: their sender paces them, and all are kept."""
KEPT_SECONDS = 1800.0
"""Seconds of each series that are kept."""
CLOSE_SECONDS = 600.0
"""Seconds for which all samples are kept even where there is not room for everything; older ones
are thinned. Rules that look further back count what rises, or see what stays, over half an hour and
more."""
THIN_SECONDS = 30.0
"""Seconds between two of the thinned samples."""
THIN_FROM = 0.75
"""Share of the room for samples that must be taken for old ones to be thinned: from then on there
may soon not be room for all."""
SLACK = 16
"""How many old samples are dropped at once."""
MOST_EVENTS = 500
"""Most events of one node; of more, the oldest are dropped."""
ROWS_AT_ONCE = 4
"""How many of a node's rows are handled at once: 2 ms for 400 series."""
GONE = 60.0
"""Seconds after which a series that is no longer sent counts as gone."""
NO_SNAPSHOT = (ValueError, TypeError, OverflowError, RecursionError)
"""Errors that a state raises which MessagePack or UTF-8 cannot represent."""
STREAMS: tuple[StreamName, ...] = ("rules", "history")

Row = tuple[float, dict[SeriesKey, float]]
"""The values of one node at one moment."""
HostRow = tuple[float, str, dict[SeriesKey, float]]
"""A row with the host of its node: (time, host, values)."""


def median(values: list[float]) -> float:
    """The median of one value or more. ``statistics.median`` takes twice as long for so few."""
    ordered, middle = sorted(values), len(values) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


class TelemetrySeries(msgspec.Struct, gc=False):
    """One series, oldest sample first, as long as its stream does not change. All methods skip
    samples that are absent or not finite."""

    times: Floats
    """When the values were sampled, on the coordinator's clock."""
    numbers: Floats
    """Rows of numbers, one for each of the times."""
    newest: int = -1
    """The place of its newest value in them, counted from the end."""
    width: int = 1
    """How many numbers a row has."""

    @property
    def values(self) -> array[float]:
        """All of its values."""
        return self.values_from(-len(self.times))

    def values_from(self, place: int) -> array[float]:
        """Its values from a place onwards, which counts from the end: -1 is the newest."""
        return self.numbers[self.newest + (place + 1) * self.width :: self.width]

    def newest_first(self) -> Iterator[tuple[float, float]]:
        """(Time, value) of each."""
        for at, place in zip(reversed(self.times), self._places, strict=True):
            if isfinite(value := self.numbers[place]):
                yield at, value

    @property
    def samples(self) -> list[tuple[float, float]]:
        """(Time, value), oldest first."""
        return list(zip(*self._from(-len(self.times)), strict=True))

    @property
    def last(self) -> float:
        """The newest value; NaN if there is none."""
        if self.times and isfinite(value := self.numbers[self.newest]):
            return value  # nearly always
        return next((value for _, value in self.newest_first()), math.nan)

    @property
    def at(self) -> float:
        """When the newest value was sampled; -inf without one."""
        if self.times and isfinite(self.numbers[self.newest]):
            return self.times[-1]
        return next((at for at, _ in self.newest_first()), -math.inf)

    @property
    def since(self) -> float:
        """When the oldest value was sampled; inf without one."""
        if self.times and isfinite(self.numbers[self.newest + self.width]):
            return self.times[0]  # nearly always
        for at, place in zip(self.times, reversed(self._places), strict=True):
            if isfinite(self.numbers[place]):
                return at
        return math.inf

    def within(self, now: float, seconds: float) -> list[float]:
        """The values of the last ``seconds``."""
        return self._from(self._begin(now, seconds))[1]

    def level(self, now: float, seconds: float, least: int = 4) -> float | None:
        """The median of the last ``seconds``; None with fewer than ``least`` samples."""
        values = self.within(now, seconds)
        return median(values) if len(values) >= least else None

    def covers(self, now: float, seconds: float) -> bool:
        """Whether its samples begin (nearly) before the last ``seconds``, and still arrive."""
        at, since = self.at, self.since
        return since < at and now - at <= seconds and now - since >= seconds - EVERY

    def settled(self, now: float, seconds: float) -> float | None:
        """The median of the last ``seconds``; None if they are not fully covered by samples."""
        return self.level(now, seconds) if self.covers(now, seconds) else None

    def rise(self, now: float, seconds: float) -> float:
        """How much a counter rose over the last ``seconds``. A fall counts as a restart from 0."""
        begin = self._compared(now, seconds)
        # Nearly all counters nearly always stand still, which shows without reading each value.
        lately = self.values_from(begin) if begin else None
        if lately is None or lately.count(lately[-1]) == len(lately):
            return 0.0
        _, values = self._from(begin)
        restarted = sum(before for before, value in pairwise(values) if value < before)
        return values[-1] - values[0] + restarted if values else 0.0

    def rose_at(self, now: float, seconds: float) -> float | None:
        """When it first rose within the last ``seconds``."""
        times, values = self._from(self._compared(now, seconds))
        rises = (at for at, (a, b) in zip(times[1:], pairwise(values), strict=True) if b > a)
        return next(rises, None)

    def usual_rate(self, now: float, skip: float) -> float | None:
        """The rise per second over the time before the last ``skip`` seconds."""
        older = [(at, value) for at, value in self.samples if now - at > skip]
        if len(older) < 4 or older[-1][0] - older[0][0] < skip:
            return None
        rises = (max(0.0, b[1] - a[1]) for a, b in pairwise(older))
        return sum(rises) / (older[-1][0] - older[0][0])

    @property
    def _places(self) -> range:
        """Where its values are among the numbers, the newest first."""
        return range(self.newest, -len(self.numbers) - 1, -self.width)

    # Other places count its samples from the end: -1 is the newest, 0 none.

    def _begin(self, now: float, seconds: float) -> int:
        """The place of the first sample within the last ``seconds``."""
        return bisect_left(self.times, now - seconds) - len(self.times)

    def _compared(self, now: float, seconds: float) -> int:
        """The place of the first sample within the last ``seconds``, or of the value before it,
        with which the first is compared."""
        begin = self._begin(now, seconds)
        first = self.newest + self.width
        for place in range(begin - 1, -len(self.times) - 1, -1) if begin else ():
            if isfinite(self.numbers[first + place * self.width]):
                return place
        return begin

    def _from(self, place: int) -> tuple[list[float], list[float]]:
        """Times and values from a place onwards."""
        if not place:
            return [], []
        times, values = self.times[place:].tolist(), self.values_from(place).tolist()
        # One value that is not finite makes the sum not finite.
        if not isfinite(sum(values)):
            finite = [isfinite(value) for value in values]
            times, values = list(compress(times, finite)), list(compress(values, finite))
        return times, values


class SampleStream(msgspec.Struct):
    """Series of a node that are sampled together: the times, and a column for each series."""

    sender: str = ""
    number: int = 0
    """The number of the newest batch."""
    table: int = 0
    size: int = 0
    """How many keys the sender's table has: they are those of the first columns."""
    columns: SampleColumns = msgspec.field(default_factory=SampleColumns)
    times: Floats = msgspec.field(default_factory=Floats)
    thinned_until: float = 0.0
    """Samples before this time are ``THIN_SECONDS`` apart."""

    def __post_init__(self) -> None:
        if len(self.columns.numbers) != len(self.times) * self.columns.width:
            raise ValueError("more values than times, or fewer")

    @property
    def size_bytes(self) -> int:
        """The most bytes that its samples take."""
        return 8 * len(self.times) * (1 + self.columns.width)

    @property
    def held(self) -> TableHeld:
        """How much of the sender's key table is known."""
        return TableHeld(sender=self.sender, table=self.table, size=self.size)

    def add(self, batch: SampleBatch, at: float) -> bool:
        """Store what a node sampled at ``at``. Returns whether the set of series has changed.

        A batch that comes late is dropped, and so is one with values of unknown keys: its sender
        learns from ``held`` that it must send them.
        """
        same = batch.sender == self.sender
        if same and batch.number <= self.number:
            return False
        if batch.known > (self.size if same and batch.table == self.table else 0):
            return False
        if len(batch.values) != 8 * (batch.known + len(batch.keys)):
            return False
        changed = False
        # Nearly all batches have the same keys as the one before.
        if batch.keys or batch.known < self.size:
            keys = (*self.columns.keys[: batch.known], *batch.keys)
            changed = keys != self.columns.keys[: self.size]
            if changed:
                self._make_room(self.columns.width + len(keys))
                self.columns.arrange(keys, len(self.times))
                self.size = len(keys)
        self.sender, self.number, self.table = batch.sender, batch.number, batch.table
        # The clock of another agent may be behind.
        at = max(at, self.times[-1]) if self.times else at
        self.times.append(at)
        self._make_room(self.columns.width)
        self.columns.append(Floats.unpacked(batch.values))
        self.expire(at)
        return changed

    def _make_room(self, width: int) -> None:
        """Drop the oldest samples of which there would be too many with so many series."""
        if (excess := len(self.times) - most_rows(width)) > 0:
            self.drop(excess)

    def expire(self, now: float) -> None:
        """Drop samples that are too old, even if no new ones arrive."""
        if old := self.expired(now):
            self.drop(old)

    def expired(self, now: float) -> int:
        """How many samples are too old, if there are enough of them to drop."""
        old = bisect_left(self.times, now - KEPT_SECONDS)
        return old if old >= SLACK or old == len(self.times) else 0

    def drop(self, number: int) -> None:
        """Drop the oldest ``number`` samples of every series."""
        del self.times[:number]
        self.columns.drop(number)

    def thin(self, now: float) -> None:
        """Keep only one old sample in every ``THIN_SECONDS``."""
        begin = bisect_left(self.times, self.thinned_until)
        end = bisect_left(self.times, now - CLOSE_SECONDS)
        if end - begin < 2:
            return
        apart = (self.times[end - 1] - self.times[begin]) / (end - begin - 1)
        every = math.floor(THIN_SECONDS / apart) if apart > 0 else end - begin
        # Those that are left over have their turn with the next ones.
        end -= (end - begin) % max(every, 1)
        if every < 2 or end == begin:
            return
        self.thinned_until = math.nextafter(self.times[end - 1], math.inf)
        self.columns.thin(begin, end, every)
        self.times[begin:end] = self.times[begin:end:every]

    def series(self, column: int) -> TelemetrySeries:
        """The series of a column."""
        width = self.columns.width
        return TelemetrySeries(self.times, self.columns.numbers, column - width, width)

    def tidy(self) -> bool:
        """Drop series that are no longer sent and have no samples: network devices and mounts come
        and go with containers. Returns whether there were any."""
        return self.columns.drop_empty(self.size, len(self.times))

    def row(self, at: float) -> dict[SeriesKey, float]:
        """The values at one moment; where samples were thinned, the last ones before it, because
        another stream has kept those of other moments."""
        place = bisect_left(self.times, at)
        if place == len(self.times) or self.times[place] != at:
            place -= 1
            if place < 0 or at >= self.thinned_until or self.times[place] <= at - THIN_SECONDS:
                return {}
        return self.columns.row(place)


_Parts = list[tuple[Mapping[str, SeriesOfName], SampleStream]]


class NodeTelemetry(msgspec.Struct, dict=True):
    """The series of one node."""

    host: str = ""
    streams: dict[StreamName, SampleStream] = {}
    events: list[tuple[float, Event]] = []
    """Events as (coordinator's time, event), oldest first."""
    tidied_at: float = 0.0
    seen: set[tuple[float, str]] = set()
    """Times and messages of the events that were received: they are sent again."""

    def __post_init__(self) -> None:
        self._held: list[ReferenceType[HeldNode]] = []
        self._known: _Parts | None = None

    def hold(self, pack: Callable[[NodeTelemetry], bytes]) -> HeldNode:
        """The current series, which ``pack`` packs on request or before they change; never if
        nobody wants them any more."""
        held = HeldNode(self, pack)
        self._held = [*(one for one in self._held if one() is not None), ReferenceType(held)]
        return held

    def before_change(self) -> None:
        """Called before anything in it changes."""
        if self._held:
            for held in filter(None, (one() for one in self._held)):
                held.pack_now()
            self._held = []

    @property
    def size_bytes(self) -> int:
        """The most bytes that its samples take."""
        return sum(stream.size_bytes for stream in self.streams.values())

    @property
    def _parts(self) -> _Parts:
        """The streams, in the order in which series are looked up, and their series by name. A
        series that is in both is that of the first."""
        if self._known is None:
            streams = [self.streams[name] for name in STREAMS if name in self.streams]
            self._known = [(stream.columns.layout.names, stream) for stream in streams]
            if len(streams) > 1:
                first, second = streams
                self._known[1] = names_beside(first.columns.layout, second.columns.layout), second
        return self._known

    def has(self, name: str) -> bool:
        """Whether it has series of a metric."""
        return any(name in names for names, _ in self._parts)

    def of_name(self, name: str) -> dict[Labels, TelemetrySeries]:
        """All series of a metric, by their labels."""
        return {
            labels: stream.series(column)
            for names, stream in self._parts
            if (named := names.get(name)) is not None
            for labels, column in zip(named.labels, named.columns, strict=True)
        }

    def get(self, name: str, now: float) -> Iterator[tuple[Mapping[str, str], TelemetrySeries]]:
        """The series of a metric that are still sent, with their labels."""
        for names, stream in self._known or self._parts:
            named = names.get(name)
            if named is None or not stream.times or now - stream.times[-1] > GONE:
                continue
            times, numbers, width = stream.times, stream.columns.numbers, stream.columns.width
            for labels, column in zip(named.by_name, named.columns, strict=True):
                series = TelemetrySeries(times, numbers, column - width, width)
                if isfinite(numbers[column - width]) or now - series.at <= GONE:
                    yield labels, series

    def one(self, name: str, now: float, **labels: str) -> TelemetrySeries | None:
        """The first series that is still sent and has these labels; None if there is none."""
        for names, stream in self._known or self._parts:
            if (named := names.get(name)) is not None:
                numbers, width = stream.columns.numbers, stream.columns.layout.width
                for column in named.matching(tuple(labels.items())):
                    series = TelemetrySeries(stream.times, numbers, column - width, width)
                    if now - series.at <= GONE:
                        return series
        return None

    def add(self, batch: SampleBatch, at: float) -> None:
        """Store what the node sampled of one stream at ``at``."""
        if self.streams.setdefault(batch.stream, SampleStream()).add(batch, at):
            self._known = None
        if at - self.tidied_at >= GONE:
            self.tidied_at = at
            if sum(stream.tidy() for stream in self.streams.values()):
                self._known = None

    def expire(self, now: float) -> None:
        """Drop samples that are too old, even if no new ones arrive."""
        for stream in self.streams.values():
            if stream.expired(now):
                self.before_change()
                stream.expire(now)

    def rows(self, after: float, seconds: float) -> Iterator[Row]:
        """The samples after ``after``, about every ``seconds``, oldest first. Samples of several
        streams at one moment are one row."""
        streams = [self.streams[name] for name in STREAMS if name in self.streams]
        newer = [set(one.times[bisect_right(one.times, after) :]) for one in streams]
        whole = newer[-1] if "history" in self.streams else set()
        for at in sorted(set().union(*newer)):
            if at in whole or at - after >= seconds - EVERY / 2:
                after = at
                rows = (stream.row(at) for stream in streams)
                yield at, {key: value for row in rows for key, value in row.items()}


class HeldNode:
    """The series of a node at one moment. Not thread-safe."""

    def __init__(self, node: NodeTelemetry, pack: Callable[[NodeTelemetry], bytes]) -> None:
        self._node: NodeTelemetry | None = node
        self._pack = pack
        self._data = b""
        self._failure: Exception | None = None

    @property
    def least_bytes(self) -> int:
        """The least bytes that they take when packed."""
        if self._node is None:
            return len(self._data)
        return sum(8 * len(one.columns.numbers) for one in self._node.streams.values())

    def packed(self) -> bytes:
        """The packed series of that moment. Raises what packing them raised."""
        self.pack_now()
        if self._failure is not None:
            raise self._failure
        return self._data

    def pack_now(self) -> None:
        """Pack the series now, if that was not done yet."""
        node, self._node = self._node, None
        if node is None:
            return
        try:
            self._data = self._pack(node)
        except NO_SNAPSHOT as error:
            self._failure = error


class Telemetry(msgspec.Struct):
    """The series of all nodes. Only the cluster view changes it."""

    nodes: dict[str, NodeTelemetry] = {}
    bounded_at: float = 0.0
    cut: bool = False
    """Whether less than the last half hour is kept, because it would need more room than there is.
    """

    def add(
        self, snapshot: Snapshot, now: float, offset: float, most_bytes: int = MOST_BYTES
    ) -> None:
        """Store the samples in a snapshot. ``offset`` is the coordinator's clock minus the node's.
        The samples of all nodes together take at most ``most_bytes``, plus what arrives in a
        minute."""
        node = self.nodes.setdefault(snapshot.node.id, NodeTelemetry())
        node.before_change()
        node.host = snapshot.node.host
        for event in snapshot.events:
            known = (event.time, event.message)
            if known not in node.seen:
                node.seen.add(known)
                node.events.append((min(now, event.time + offset), event))
                del node.events[:-MOST_EVENTS]
        if len(node.seen) > 4 * MOST_EVENTS:
            node.seen = {(event.time, event.message) for _, event in node.events}
        for batch in snapshot.samples:
            # The time is when they were sampled: samples that were delayed on their way are not
            # new.
            node.add(batch, min(now, snapshot.time + offset))
        if now - self.bounded_at >= GONE:
            self.bounded_at = now
            for one in self.nodes.values():
                one.expire(now)
            self._bound(now, most_bytes)

    def _bound(self, now: float, most_bytes: int) -> None:
        """Thin old samples if there is hardly room for all. If that is not enough, drop the oldest,
        first those that no rule reads."""
        self.cut = False
        if self.size > THIN_FROM * most_bytes:
            for node in self.nodes.values():
                node.before_change()
                for stream in node.streams.values():
                    stream.thin(now)
        for name in reversed(STREAMS):
            excess = self.size - most_bytes
            of_name = [node for node in self.nodes.values() if name in node.streams]
            there = sum(node.streams[name].size_bytes for node in of_name)
            if excess > 0 and there:
                self.cut = True
                for node in of_name:
                    node.before_change()
                    stream = node.streams[name]
                    stream.drop(math.ceil(min(1.0, excess / there) * len(stream.times)))

    def drop_oldest(self, name: StreamName, now: float, least_seconds: float) -> bool:
        """Drop the older half of the samples in streams of this name, but nothing from the last
        ``least_seconds``. Returns whether anything was dropped."""
        old: list[tuple[NodeTelemetry, SampleStream, int]] = []
        for node in self.nodes.values():
            stream = node.streams.get(name)
            if stream is not None and stream.times:
                until = min(now - least_seconds, (stream.times[0] + now) / 2)
                old.append((node, stream, bisect_left(stream.times, until)))
        # A few of each are not worth it, and would keep the next part from its turn; so would
        # dropping much of one node after the other, which is little of the total.
        if not old or sum(number for _, _, number in old) < SLACK * len(old):
            return False
        for node, stream, number in old:
            node.before_change()
            stream.drop(number)
        return True

    def hold(self, pack: Callable[[NodeTelemetry], bytes]) -> dict[str, HeldNode]:
        """All nodes at this moment: see ``NodeTelemetry.hold``."""
        return {node_id: node.hold(pack) for node_id, node in self.nodes.items()}

    def rows(
        self,
        until: dict[str, float],
        begin: float,
        seconds: float,
        lock: AbstractContextManager[object],
    ) -> Iterator[HostRow]:
        """What nodes sent after ``until``, a time for each node that is moved forward; for other
        nodes, after ``begin``. About one row every ``seconds`` for each node, oldest first.

        ``lock`` is taken for ``ROWS_AT_ONCE`` of them at a time, so that whoever changes the
        numbers hardly waits: the rows of half an hour take seconds to minutes.
        """
        with lock:
            node_ids = list(self.nodes)
        for gone in until.keys() - set(node_ids):
            del until[gone]
        for node_id in node_ids:
            more = True
            while more:
                with lock:
                    node = self.of(node_id)
                    newer = node.rows(until.get(node_id, begin), seconds)
                    rows = list(islice(newer, ROWS_AT_ONCE))
                for at, values in rows:
                    until[node_id] = at
                    yield at, node.host, values
                more = len(rows) == ROWS_AT_ONCE

    @property
    def size(self) -> int:
        """The most bytes that its samples take; their names come on top."""
        return sum(node.size_bytes for node in self.nodes.values())

    def held(self, node_id: str) -> dict[StreamName, TableHeld]:
        """How much is known of the key tables that a node sends."""
        return {name: stream.held for name, stream in self.of(node_id).streams.items()}

    def forget(self, node_id: str) -> None:
        """Drop a node that left long ago."""
        self.nodes.pop(node_id, None)

    def of(self, node_id: str) -> NodeTelemetry:
        """A node's series; empty if the node is unknown."""
        return self.nodes.get(node_id) or NodeTelemetry()

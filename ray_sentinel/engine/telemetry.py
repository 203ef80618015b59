"""The key series of each node over the last minutes, and the events that its collectors told.

Agents send the values of now; here they become short histories. A counter's absolute value says
nothing (it may be old from boot): only what it rose by since it was first seen.
"""

from __future__ import annotations

import statistics
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.progress import Snapshot

EVERY = 4.0
"""Seconds between two samples that are kept."""
KEPT = 300
"""Samples of a series: some twenty minutes."""
MOST_EVENTS = 500
"""Of one node; the oldest go first."""
MOST_PARSED = 200_000
"""Names of series that are remembered taken apart."""
GONE = 60.0
"""Seconds after which a series that is no longer sent is not there any more."""

Labels = tuple[tuple[str, str], ...]
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


if TYPE_CHECKING:
    _Array = array[float]
else:
    _Array = array


class Floats(_Array):
    """Numbers of eight bytes each; in a snapshot they are those bytes, the lowest first."""

    __slots__ = ()

    def __new__(cls, values: Iterable[float] | bytes = ()) -> Floats:
        return cast("Floats", super().__new__(cls, "d", values))

    def packed(self) -> bytes:
        """What ``unpacked`` takes."""
        return self.tobytes() if sys.byteorder == "little" else _swapped(self).tobytes()

    @classmethod
    def unpacked(cls, data: bytes) -> Floats:
        """Raises ValueError where the bytes are no whole numbers."""
        found = cls(data)
        return found if sys.byteorder == "little" else _swapped(found)


def _swapped(floats: Floats) -> Floats:
    copy = Floats(floats)
    copy.byteswap()
    return copy


class TelemetrySeries(msgspec.Struct):
    """One series, oldest first."""

    times: Floats = msgspec.field(default_factory=Floats)
    """On the coordinator's clock."""
    values: Floats = msgspec.field(default_factory=Floats)

    def add(self, at: float, value: float) -> None:
        """One more sample; the oldest of more than 300 is forgotten."""
        self.times.append(at)
        self.values.append(value)
        if len(self.times) > KEPT:
            del self.times[0], self.values[0]

    @property
    def samples(self) -> list[tuple[float, float]]:
        """(time, value), oldest first."""
        return list(zip(self.times, self.values, strict=True))

    @property
    def last(self) -> float:
        return self.values[-1]

    @property
    def at(self) -> float:
        return self.times[-1]

    def within(self, now: float, seconds: float) -> list[float]:
        """The values of the last ``seconds``."""
        values: list[float] = []
        for at, value in zip(reversed(self.times), reversed(self.values), strict=True):
            if now - at > seconds:
                break
            values.append(value)
        values.reverse()
        return values

    def level(self, now: float, seconds: float, least: int = 4) -> float | None:
        """The median of the last ``seconds``; None with fewer than ``least`` samples."""
        values = self.within(now, seconds)
        return statistics.median(values) if len(values) >= least else None

    def covers(self, now: float, seconds: float) -> bool:
        """Its samples begin before the last ``seconds`` (nearly), and it still comes."""
        if len(self.times) < 2 or now - self.at > seconds:
            return False
        return now - self.times[0] >= seconds - EVERY

    def settled(self, now: float, seconds: float) -> float | None:
        """The median of the last ``seconds``; None where it was not sampled over all of them."""
        return self.level(now, seconds) if self.covers(now, seconds) else None

    def rise(self, now: float, seconds: float) -> float:
        """By how much a counter rose over the last ``seconds``; a fall is a restart, from 0."""
        total, before = 0.0, None
        for at, value in zip(self.times, self.values, strict=True):
            if before is not None and now - at <= seconds:
                total += value - before if value >= before else value
            before = value
        return total

    def rose_at(self, now: float, seconds: float) -> float | None:
        """When it first rose within the last ``seconds``."""
        before = None
        for at, value in zip(self.times, self.values, strict=True):
            if before is not None and value > before and now - at <= seconds:
                return at
            before = value
        return None

    def rate(self, now: float, seconds: float) -> float | None:
        """Rise per second over the last ``seconds``; None where that is not covered."""
        return self.rise(now, seconds) / seconds if self.covers(now, seconds) else None

    def usual_rate(self, now: float, skip: float) -> float | None:
        """Rise per second over all that was before the last ``skip`` seconds."""
        older = [(at, value) for at, value in self.samples if now - at > skip]
        if len(older) < 4 or older[-1][0] - older[0][0] < skip:
            return None
        rises = (max(0.0, b[1] - a[1]) for a, b in pairwise(older))
        return sum(rises) / (older[-1][0] - older[0][0])


class NodeTelemetry(msgspec.Struct, dict=True):
    """The series of one node."""

    series: dict[str, dict[Labels, TelemetrySeries]] = {}
    events: list[tuple[float, Event]] = []
    """(coordinator's time, event), oldest first."""
    sampled_at: float = 0.0
    tidied_at: float = 0.0
    seen: set[tuple[float, str]] = set()
    """Time and message of events that were told: they are sent again."""

    def __post_init__(self) -> None:
        self._found: dict[tuple[str, Labels], TelemetrySeries] = {}
        """Answers of ``one``; let go of where another series may be the first by now."""

    def get(self, name: str, now: float) -> Iterator[tuple[dict[str, str], TelemetrySeries]]:
        """The series of a metric that are still sent, with their labels."""
        for labels, series in self.series.get(name, {}).items():
            if now - series.at <= GONE:
                yield dict(labels), series

    def one(self, name: str, now: float, **labels: str) -> TelemetrySeries | None:
        """The series with just these labels among its own; None where there is none."""
        key = (name, tuple(labels.items()))
        known = self._found.get(key)
        if known is None or now - known.at > GONE:
            wanted = labels.items()
            known = next((s for found, s in self.get(name, now) if wanted <= found.items()), None)
            if known is not None:
                self._found[key] = known
        return known

    def add(self, name: str, labels: Labels, now: float, value: float) -> None:
        """One more sample of a series."""
        of_name = self.series.setdefault(name, {})
        series = of_name.get(labels)
        if series is None:
            series = of_name[labels] = TelemetrySeries()
            self._found.clear()
        elif now - series.at > GONE:
            self._found.clear()
        series.add(now, value)

    def tidy(self, now: float) -> None:
        """Let go of series that were not sent for as long as samples are kept: network devices and
        mounts come and go with containers."""
        if now - self.tidied_at < GONE:
            return
        self.tidied_at = now
        for name, found in list(self.series.items()):
            kept = {key: one for key, one in found.items() if now - one.at <= KEPT * EVERY}
            if kept:
                self.series[name] = kept
            else:
                del self.series[name]
        self._found = {key: one for key, one in self._found.items() if now - one.at <= GONE}


class Telemetry(msgspec.Struct, dict=True):
    """All nodes. Changed only by the cluster view."""

    nodes: dict[str, NodeTelemetry] = {}

    def __post_init__(self) -> None:
        self._parsed: dict[str, tuple[str, Labels]] = {}

    def take(self, snapshot: Snapshot, now: float, offset: float) -> None:
        """What a snapshot brought; ``offset``: the coordinator's clock minus the node's."""
        node = self.nodes.setdefault(snapshot.node.id, NodeTelemetry())
        for event in snapshot.events:
            known = (event.time, event.message)
            if known not in node.seen:
                node.seen.add(known)
                node.events.append((min(now, event.time + offset), event))
                del node.events[:-MOST_EVENTS]
        if len(node.seen) > 4 * MOST_EVENTS:
            node.seen = {(event.time, event.message) for _, event in node.events}
        if not snapshot.gauges or now - node.sampled_at < EVERY:
            return
        node.sampled_at = now
        for key, value in _finite(snapshot.gauges):
            name, labels = self._parse(key)
            node.add(name, labels, now, value)
        node.tidy(now)

    @property
    def size(self) -> int:
        """Bytes that its samples take in a snapshot, about; their names come on top."""
        metrics = (metric for node in self.nodes.values() for metric in node.series.values())
        return sum(16 * len(series.times) for metric in metrics for series in metric.values())

    def forget(self, node_id: str) -> None:
        """The node left long ago."""
        self.nodes.pop(node_id, None)

    def of(self, node_id: str) -> NodeTelemetry:
        """A node's series; none where it is not known."""
        return self.nodes.get(node_id) or NodeTelemetry()

    def _parse(self, key: str) -> tuple[str, Labels]:
        known = self._parsed.get(key)
        if known is None:
            name, _, rest = key.partition("{")
            known = name, tuple(sorted(_LABEL.findall(rest)))
            if len(self._parsed) >= MOST_PARSED:
                self._parsed.clear()
            self._parsed[key] = known
        return known


def _finite(gauges: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for key, value in gauges.items():
        if value == value and abs(value) != float("inf"):
            yield key, value

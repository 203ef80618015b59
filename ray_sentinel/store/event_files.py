"""Scalars of TensorBoard event files, whole and at once: the ground truth of the training series.

A file is a sequence of records (length, masked CRC-32C of it, data, masked CRC-32C of the data;
``tensorflow/core/lib/io/record_writer.h``) of ``Event`` messages (``tensorflow/core/util/
event.proto``). Only what a scalar needs is read; a torn tail ends a file.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ray_sentinel.diagnose.series import Grid, Reduce, Samples, Selector, TimeSeries
from ray_sentinel.store.memory import MemorySource

MAX_BYTES = 512 << 20
"""Of one file; a larger one is not read, for it holds more than scalars."""
MAX_DEPTH = 4
_LENGTH = struct.Struct("<Q")


def find_event_files(folder: Path) -> list[Path]:
    """Event files in a job's folder, the oldest first."""
    found: list[Path] = []
    level = [folder]
    for _ in range(MAX_DEPTH):
        deeper: list[Path] = []
        for place in level:
            try:
                entries = sorted(place.iterdir())
            except OSError:
                continue
            found += [entry for entry in entries if "tfevents" in entry.name and entry.is_file()]
            deeper += [
                entry
                for entry in entries
                if entry.is_dir() and not entry.is_symlink() and entry.name not in _SKIPPED
            ]
        level = deeper[:512]
    return sorted(found, key=lambda file: file.name)


_SKIPPED = frozenset({"prometheus", "ray_logs", "xla_dump", "incidents", "checkpoints"})


def read_scalars(file: Path) -> Iterator[tuple[float, int, str, float]]:
    """(wall time, step, tag, value) of each scalar; stops at the first torn or broken record."""
    data = file.read_bytes() if file.stat().st_size <= MAX_BYTES else b""
    at = 0
    while at + 12 <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        end = at + 12 + length
        if end + 4 > len(data):
            return
        try:
            yield from _event(memoryview(data)[at + 12 : end])
        except (ValueError, IndexError, struct.error):
            return
        at = end + 4


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """(number, wire type, content) of a protobuf message's fields."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            start = at
            _, at = _varint(data, at)
            yield number, kind, data[start:at]
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in {1, 5}:
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("unknown wire type")
        if at + size > len(data):
            raise ValueError("truncated field")
        yield number, kind, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("varint too long")


def _event(data: memoryview) -> Iterator[tuple[float, int, str, float]]:
    time, step, summaries = 0.0, 0, []
    for number, _, content in _fields(data):
        if number == 1:
            time = struct.unpack("<d", content)[0]
        elif number == 2:
            step = _varint(content, 0)[0]
        elif number == 5:
            summaries.append(content)
    for summary in summaries:
        for number, _, value in _fields(summary):
            if number == 1 and (scalar := _value(value)) is not None:
                yield time, step, *scalar


def _value(data: memoryview) -> tuple[str, float] | None:
    """Tag and value of a ``Summary.Value``: ``simple_value``, or a tensor of one number."""
    tag, value = "", None
    for number, kind, content in _fields(data):
        if number == 1:
            tag = bytes(content).decode("utf-8", "replace")
        elif number == 2 and kind == 5:
            value = float(struct.unpack("<f", content)[0])
        elif number == 8:
            value = _tensor(content)
    return (tag, value) if tag and value is not None else None


def _tensor(data: memoryview) -> float | None:
    kind, raw, floats, doubles = 0, b"", b"", b""
    for number, _, content in _fields(data):
        if number == 1:
            kind = _varint(content, 0)[0]
        elif number == 2:
            # A shape with dimensions is no scalar.
            if any(True for _ in _fields(content)):
                return None
        elif number == 4:
            raw = bytes(content)
        elif number == 5:
            floats = bytes(content)
        elif number == 6:
            doubles = bytes(content)
    if kind == 1:
        return float(struct.unpack("<f", (raw or floats)[:4])[0]) if raw or floats else None
    if kind == 2:
        return float(struct.unpack("<d", (raw or doubles)[:8])[0]) if raw or doubles else None
    return None


def metric_of(tag: str) -> str:
    """The series name of a tag.

    >>> metric_of("perf/step_time_seconds")
    'tb_perf_step_time_seconds'
    """
    return "tb_" + re.sub(r"[^a-z0-9]+", "_", tag.lower()).strip("_")


def load_events(files: list[Path], host: str = "") -> MemorySource:
    """All scalars of some event files as ``tb_*`` series, with ``tb_step``."""
    points: dict[str, dict[float, float]] = {}
    for file in files:
        for time, step, tag, value in read_scalars(file):
            points.setdefault(metric_of(tag), {})[time] = value
            points.setdefault("tb_step", {})[time] = float(step)
    source = MemorySource("event files")
    for name, values in points.items():
        times = np.array(sorted(values))
        source.add(name, {"host": host} if host else {}, times, [values[t] for t in times])
    return source


class WithEvents:
    """A source whose ``tb_*`` series come from event files: every step, no gap, no fill."""

    def __init__(self, source: TimeSeries, events: MemorySource) -> None:
        self._source, self._events = source, events
        self.title = source.title
        self.notes = [*source.notes, "training series are read from the event files"]
        self._ours = set(events.families())

    @property
    def seconds_waiting(self) -> float:
        """Time spent waiting for the other source."""
        return float(getattr(self._source, "seconds_waiting", 0.0))

    def families(self) -> tuple[str, ...]:
        theirs = (
            name for name in self._source.families() if name != "tb_metrics_plugin_staleness_fill"
        )
        return tuple(sorted({*theirs, *self._ours}))

    def span(self) -> tuple[float, float] | None:
        return self._source.span() or self._events.span()

    def label_sets(self, name: str, start: float, end: float) -> list[dict[str, str]]:
        return self._of(name).label_sets(name, start, end)

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        return self._of(selector.name).samples(selector, start, end)

    def query_range(
        self, selector: Selector, start: float, end: float, step: float, reduce: Reduce = "last"
    ) -> Grid:
        return self._of(selector.name).query_range(selector, start, end, step, reduce)

    def _of(self, name: str) -> TimeSeries:
        return self._events if name in self._ours else self._source


def with_events(source: TimeSeries, folder: Path | None) -> TimeSeries:
    """``source`` with the training series of the event files in ``folder``, where they fit.

    Files of another run (whose time lies outside) are left alone.
    """
    files = find_event_files(folder) if folder is not None else []
    span = source.span()
    if not files or span is None:
        return source
    events = load_events(files)
    ours = events.span()
    if ours is None or ours[1] < span[0] or ours[0] > span[1]:
        return source
    return WithEvents(source, events)

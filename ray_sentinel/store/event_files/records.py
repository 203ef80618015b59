"""Reads whole event files in chunks; damaged parts are skipped up to the next good record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ray_sentinel.evidence.event_files.events import EventRecord, MalformedEvent, parse_event
from ray_sentinel.evidence.event_files.records import HEADER, MAX_RECORD, next_good, scan
from ray_sentinel.regular_file import open_regular

CHUNK = 4 << 20
"""Bytes read at once; a longer record is still read whole."""


class _Losses:
    """What of a file could not be read."""

    def __init__(self) -> None:
        self.records = 0
        self.corrupt = 0
        """How many times records were lost."""
        self.malformed = 0
        self.oversize = 0
        self.torn = 0
        """Bytes of a last record that is not whole."""

    def describe(self, name: str) -> Iterator[str]:
        """Each loss in a sentence."""
        if not self.records and (self.corrupt or self.torn):
            yield f"{name} holds no whole record: it is compressed, no event file, or just begun"
            return
        if self.corrupt:
            yield f"{name} is damaged in {self.corrupt} places; the records there are left out"
        if self.malformed:
            yield f"{self.malformed} records of {name} are no events and were left out"
        if self.oversize:
            yield f"{self.oversize} records of {name} are longer than 64 MiB and were passed over"
        if self.torn:
            yield f"{name} ends within a record: {self.torn} bytes of it were left out"


def read_events(file: Path, notes: list[str] | None = None) -> Iterator[EventRecord]:
    """The events of one file in order; ``notes`` say what could not be read."""
    notes = notes if notes is not None else []
    losses = _Losses()
    try:
        with open_regular(file) as stream:
            for record in _records(stream, losses):
                losses.records += 1
                try:
                    yield parse_event(record)
                except MalformedEvent:
                    losses.malformed += 1
    except OSError as error:
        notes.append(f"{file.name} cannot be read: {error.strerror}")
    notes += losses.describe(file.name)


def _records(stream: BinaryIO, losses: _Losses) -> Iterator[bytes]:
    """The data of each good record."""
    pending, need, lost = b"", 0, False
    while True:
        more = stream.read(max(CHUNK, need - len(pending)))
        data = pending + more
        found = scan(data)
        yield from found.records
        # A stretch that goes on from the last chunk was counted when it began.
        losses.corrupt += max(0, found.corrupt + found.bad - lost)
        lost, need, consumed = found.bad, found.need, found.consumed
        if found.bad:
            consumed = max(consumed + 1, len(data) - HEADER + 1)
        pending = data[consumed:]
        if need > MAX_RECORD:
            losses.oversize += 1
            # Never beyond the end: what is torn there leaves nothing to read.
            stream.seek(need - len(pending), 1)
            pending, need = b"", 0
        elif not more and need and (following := next_good(data, consumed + 1)) is not None:
            # No record of a finished file goes beyond its end: this one was torn, and went on.
            losses.corrupt += 1
            pending, need = data[following:], 0
        elif not more:
            losses.torn = 0 if lost else len(pending)
            return

"""The engine's event log: every event as one line of JSON, in segments that are bounded.

A segment's first line, the header, also holds the engine's state when it began, so that a replay
can start at any segment. The larger the state, the more events follow it (``most_events``), so that
states take about half of a log at most. Full segments are compressed; the oldest go first. Lines
are written with one ``write`` each, so that after SIGKILL at most the last line is torn, and
reading leaves a torn line out.

A segment is packed into ``NNNNNN.jsonl.part``, which becomes ``NNNNNN.jsonl.gz``, and is then
deleted. SIGKILL between two of these steps leaves two copies: the unpacked one is complete for as
long as it exists, so it then counts as the segment, and is packed again.

Evidence that is too large for a line lies beside the segments (``evidence_files``), and counts
towards the same bound.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import logging
import os
import shutil
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, cast

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.actors.coordinator.event_log.evidence_files import (
    EVIDENCE_SHARE,
    EvidenceFiles,
    is_evidence_file,
)
from ray_sentinel.engine.events import LOG_VERSION, AnyEvent, KeptEvidence
from ray_sentinel.errors import InputError
from ray_sentinel.logs.salvage import Salvage, damage_text
from ray_sentinel.private_files import FILE_MODE, keep_private, opener
from ray_sentinel.progress.rank.own_process import boot_number

log = logging.getLogger(__name__)

SEGMENT_BYTES = 8 << 20
"""Bytes of events, as they are written, after which a segment with a small state is full."""
EVENTS_PER_STATE = 5
"""Bytes of events for each byte of the packed state with which a segment begins. Reports of nodes
are compressed to a fifth, so that a full segment's events then take as much as its state."""
MOST_EVENTS = 128 << 20
"""Most bytes of events in a segment that begins with a large state. A coordinator that takes over
replays them, some 45 MB in a second of CPU."""
LOG_SHARE = 4
"""A segment's events take at most one part in so many of what the log may take: until they are
compressed, the log may be larger by this, and a log of few segments would not reach back far."""
MOST_UNPACKED = 256 << 20
"""Most bytes of one segment that are read: no file, however it is packed, costs more memory."""
MOST_STATE = 128 << 20
"""Most bytes of the state with which a segment begins. Even if it cannot be compressed, and so
takes a third more in the header, it leaves room for 64 MiB of events below ``MOST_UNPACKED``.
"""
LAST_EVENT_BYTES = 13 << 20
"""Bytes below ``MOST_UNPACKED`` that are left to the last event of a segment."""
MOST_READ_STATE = 1 << 30
"""Most bytes of one state that are unpacked: earlier versions wrote larger ones."""
LOOK_SECONDS = 5.0
"""Seconds of events after which the file is looked at again: somebody else may have removed it."""
_PIECE = 1 << 20
"""Bytes of a segment that are compressed at a time."""
_SUFFIX, _PACKED, _PART = ".jsonl", ".jsonl.gz", ".jsonl.part"
_NAME = re.compile(r"(?P<number>\d{6,12})(?P<kind>\.jsonl(?:\.gz|\.part)?)", re.ASCII)


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a segment."""

    log: str = "ray_sentinel events"
    version: int = LOG_VERSION
    started_at: float = 0.0
    state: bytes = b""
    """The engine's snapshot before the first event, compressed (``packed_state``). Empty in a
    segment that had to begin without."""
    lost: int = 0
    """How many events are missing between the previous segment and this one, because the disk did
    not take them."""
    boot: int = 0
    """A number for the boot of the coordinator's machine; 0 where that is hidden."""
    clock_offset: float = 0.0
    """Times of the events minus ``CLOCK_MONOTONIC`` in that boot: a coordinator that is started
    again goes on with them, however the wall clock was set meanwhile."""


def packed_state(state: bytes) -> bytes:
    """A snapshot in the form that headers contain."""
    return zlib.compress(state, 1) if state else b""


def most_events(packed: int, log_bytes: int, least: int = SEGMENT_BYTES) -> int:
    """Bytes of events after which a segment is full that begins with ``packed`` bytes of compressed
    state, in a log that may take ``log_bytes``; never less than ``least``."""
    wanted = min(EVENTS_PER_STATE * packed, MOST_EVENTS, log_bytes // LOG_SHARE)
    return max(least, min(wanted, _readable_events(packed) - SEGMENT_BYTES))


def _readable_events(packed: int) -> int:
    """Bytes of events that fit into a segment that can still be read."""
    in_header = -(-packed // 3) * 4  # bytes as text
    return MOST_UNPACKED - in_header - LAST_EVENT_BYTES


def unpacked_state(header: SegmentHeader) -> bytes:
    """The snapshot in a header; empty if it has none. Raises InputError if it is damaged."""
    unpacker = zlib.decompressobj()
    try:
        state = unpacker.decompress(header.state, MOST_READ_STATE)
    except zlib.error as error:
        raise InputError(f"the engine's state cannot be unpacked: {error}") from None
    if unpacker.unconsumed_tail or (header.state and not unpacker.eof):
        raise InputError("the engine's state is torn, or larger than 1 GiB")
    return state


_encoder = msgspec.json.Encoder()
encoded = _encoder.encode
"""A line of the log. Raises ValueError and the like for what JSON or UTF-8 cannot hold."""
_event_decoder = msgspec.json.Decoder(AnyEvent)
_header_decoder = msgspec.json.Decoder(SegmentHeader)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors that a line raises which is no event."""


class EventLog:
    """Appends to the newest segment of ``folder``. Not safe for several threads or processes."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = 256 << 20,
        segment_bytes: int = SEGMENT_BYTES,
        clock_offset: float = 0.0,
    ) -> None:
        """``clock_offset`` goes into the headers.

        Raises OSError if the folder cannot be made.
        """
        keep_private(folder)
        self.folder = folder
        self._evidence = EvidenceFiles(folder, max_bytes // EVIDENCE_SHARE)
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._clock_offset = clock_offset
        self._file = -1
        self._size = 0
        self._full_at = self._over_at = segment_bytes
        self._has_state = False
        """Whether the segment began with the engine's state."""
        self._path = folder
        """The segment that is being written."""
        self._looked_at = 0.0
        self._place = (0, 0)
        """Device and inode of the segment, and ``_length`` its bytes, as we wrote it."""
        self._length = self._events = 0
        self._unsaid = 0
        """How many of ``removed`` no header tells yet."""
        self._number = max((_number(path) for path in _files(folder)), default=0)
        self.removed = 0
        """How many events are gone because somebody else removed or changed their file."""

    @property
    def begins(self) -> bool:
        """Whether the next event that comes with a state begins a new segment."""
        return self._file < 0 or self._full or not self._has_state

    @property
    def _over(self) -> bool:
        """Whether the segment is so full that the next one begins even without a state: everything
        that was written must be readable."""
        return self._size >= self._over_at

    @property
    def _full(self) -> bool:
        return self._size >= self._full_at

    def append(self, event: AnyEvent, state: bytes = b"") -> None:
        """Write one event. ``state``, the engine's snapshot before it, begins a new segment; it is
        needed if ``begins``. Without one, a segment that began with a state is continued although
        it is full, as long as it can still be read.

        Raises OSError (disk full, folder gone), or ValueError for text that UTF-8 cannot hold; the
        log can be used again afterwards.
        """
        self.append_line(encoded(event), event.time, state)

    def append_line(self, line: bytes, time: float, state: bytes = b"", *, lost: int = 0) -> None:
        """``append`` for an event that is already encoded. A new segment begins with it if ``lost``
        events before it are missing, or if somebody else removed or changed the segment."""
        if self._file >= 0 and abs(time - self._looked_at) >= LOOK_SECONDS:
            self._look(time)
        gap = lost > 0 or self._unsaid > 0
        must = self._file < 0 or (self._full and not self._has_state) or self._over or gap
        if must or state:
            self.begin(time, state, lost=lost)
        self._write(line)

    def keep(self, evidence: KeptEvidence) -> None:
        """Write the evidence of the event that follows into its file. A verdict does without where
        the disk does not take it."""
        try:
            self._evidence.keep(evidence)
            self._prune(self.folder / f"{self._number:06d}{_SUFFIX}")
        except OSError as error:
            log.warning("%s could not be written: %s", self.folder / evidence.file, error)

    def begin(self, time: float, state: bytes, *, lost: int = 0) -> None:
        """Begin a segment with the engine's state at ``time``. Raises OSError, like ``append``."""
        self.close()
        keep_private(self.folder)  # somebody may have removed it
        packed = packed_state(state)
        header = _encoder.encode(
            SegmentHeader(
                started_at=time,
                state=packed,
                lost=lost + self._unsaid,
                boot=boot_number(),
                clock_offset=self._clock_offset,
            )
        )
        self._number += 1
        path = self.folder / f"{self._number:06d}{_SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, FILE_MODE)
        info = os.fstat(self._file)
        self._path, self._place, self._looked_at = path, (info.st_dev, info.st_ino), time
        self._length = 0
        self._write(header)
        # The size counts only its events: the state of a large job is large.
        self._size, self._events, self._unsaid, self._has_state = 0, 0, 0, bool(state)
        self._full_at = most_events(len(packed), self._max_bytes, self._segment_bytes)
        self._over_at = max(self._full_at, _readable_events(len(packed)))
        self._pack_and_prune(path)

    def _write(self, line: bytes) -> None:
        data = line + b"\n"
        try:
            if os.write(self._file, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            # A later line must not be glued to a torn one: it begins a new segment.
            self.close()
            raise
        self._size += len(data)
        self._length += len(data)
        self._events += 1

    def _look(self, time: float) -> None:
        """Close the segment if somebody else removed, moved or changed it: what is written into it
        could not be found or read."""
        self._looked_at = time
        try:
            info = os.lstat(self._path)
            if (info.st_dev, info.st_ino, info.st_size) == (*self._place, self._length):
                return
            left = sum(1 for _ in begun_segment(self._path)[1])
        except (OSError, InputError):
            left = 0
        self.close()
        lost = max(0, self._events - left)
        self.removed += lost
        self._unsaid += lost
        log.warning("%s was removed or changed by somebody else: %d events", self._path, lost)

    def _pack_and_prune(self, current: Path) -> None:
        for path in _files(self.folder):
            if path.name.endswith(_PART):
                path.unlink(missing_ok=True)  # left by a process killed while packing
            elif path.name.endswith(_SUFFIX) and path != current:
                _pack(path)
        self._prune(current)

    def _prune(self, current: Path) -> None:
        # They may be too many if the log may take less than before, and would then cost segments.
        with contextlib.suppress(OSError):
            self._evidence.make_room()
        sizes = {path: path.stat().st_size for path in _files(self.folder)}
        total = sum(sizes.values()) + self._evidence.size
        for path in sorted(sizes.keys() - {current}, key=_number):
            if total <= self._max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= sizes[path]

    def close(self) -> None:
        """Close the segment; the next event begins another."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _pack(path: Path) -> None:
    packed = path.with_name(path.stem + _PACKED)
    partial = path.with_name(path.stem + _PART)
    try:
        partial.unlink(missing_ok=True)
        with path.open("rb") as unpacked, open(partial, "xb", opener=opener) as file:
            # In pieces: a whole segment would take three times its bytes of memory.
            with gzip.GzipFile("", "wb", compresslevel=1, fileobj=file) as pack:
                shutil.copyfileobj(unpacked, pack, _PIECE)
            file.flush()
            # Before the unpacked file is deleted, because a host may lose its power.
            os.fsync(file.fileno())
        os.replace(partial, packed)
        path.unlink()
    except OSError as error:
        # The segment stays unpacked, and counts with its unpacked size.
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        log.warning("%s could not be compressed: %s", path, error)


def is_log_file(name: str) -> bool:
    """Whether a log has files of that name: segments, what packing one may have left, evidence."""
    return _NAME.fullmatch(name) is not None or is_evidence_file(name)


def segments(folder: Path) -> list[Path]:
    """The segments of a log, oldest first; of one that exists twice, the complete one. What is no
    regular file is none: in a folder of somebody else's it may be anything."""
    found: dict[int, Path] = {}
    for path in filter(Path.is_file, _files(folder)):
        number, known = _number(path), found.get(_number(path))
        if not path.name.endswith(_PART) and (known is None or known.name.endswith(_PACKED)):
            found[number] = path
    return [found[number] for number in sorted(found)]


def _files(folder: Path) -> list[Path]:
    """All files of segments; none if there is no folder."""
    try:
        return sorted(folder / name for name in os.listdir(folder) if _NAME.fullmatch(name))
    except OSError:
        return []


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match["number"]) if match else 0


def read_segment(path: Path) -> tuple[SegmentHeader, list[AnyEvent]]:
    """One segment. Raises InputError, naming the file, if it is not an event log.

    Lines that are torn or of a kind unknown to this version are left out, and reported in our own
    log.
    """
    header, events = begun_segment(path)
    return header, list(events)


def begun_segment(path: Path) -> tuple[SegmentHeader, Iterator[AnyEvent]]:
    """One segment, read into memory; its events are decoded one by one, because all at once take
    several times its memory."""
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            data = file.read(MOST_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return _parsed(path, data)


def salvaged_segment(path: Path) -> tuple[SegmentHeader, list[AnyEvent], list[str]]:
    """A segment that may be cut off or damaged, as far as it can be read, and what is missing, in
    words. Raises InputError if not even its first line can be read."""
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            reader = Salvage(cast("IO[bytes]", file))
            data = reader.read(MOST_UNPACKED + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if reader.problem and b"\n" not in data:
        raise InputError(f"{path}: {damage_text(reader.problem, 'gzip', partly=False)}")
    problems: list[str] = []
    header, found = _parsed(path, data, problems)
    events = list(found)
    if reader.problem:
        problems = [f"{path}: {damage_text(reader.problem, 'gzip', partly=True)}", *problems]
    return header, events, problems


def _parsed(
    path: Path, data: bytes, problems: list[str] | None = None
) -> tuple[SegmentHeader, Iterator[AnyEvent]]:
    """Header and events; one line for each line that is left out goes to ``problems``, or into our
    log."""
    if len(data) > MOST_UNPACKED:
        raise InputError(
            f"{path}: is no event log of ray_sentinel: it holds more than {MOST_UNPACKED >> 20} MiB"
        )
    lines = BytesIO(data)
    return _header(path, lines.readline()), _events(path, lines, problems)


def read_header(path: Path) -> SegmentHeader:
    """The first line of a segment, also of one that is torn or too large to be read whole. Raises
    InputError, naming the file."""
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            line = file.readline(MOST_UNPACKED)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return _header(path, line)


def _header(path: Path, line: bytes) -> SegmentHeader:
    try:
        header = _header_decoder.decode(line)
    except _UNREADABLE as error:
        raise InputError(
            f"{path}: is not an event log of ray_sentinel: its first line is no header ({error})"
        ) from None
    if header.version > LOG_VERSION:
        raise InputError(
            f"{path}: was written by a newer ray_sentinel (log version {header.version}, this one "
            f"reads up to {LOG_VERSION}): install that version"
        )
    return header


def _events(path: Path, lines: IO[bytes], problems: list[str] | None) -> Iterator[AnyEvent]:
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        try:
            yield _event_decoder.decode(line)
        except _UNREADABLE as error:
            problem = f"{path}:{number}: left out, this version cannot read it: {error}"
            if problems is None:
                log.warning("%s", problem)
            else:
                problems.append(problem)


def read(folder: Path) -> tuple[SegmentHeader, list[AnyEvent]]:
    """A whole log: the first header and all events in order.

    Raises InputError if there is none, or where it cannot be read.
    """
    found = segments(folder)
    if not found:
        raise InputError(f"{folder}: holds no event log (NNNNNN.jsonl or NNNNNN.jsonl.gz)")
    parts = [read_segment(path) for path in found]
    return parts[0][0], [event for _, events in parts for event in events]

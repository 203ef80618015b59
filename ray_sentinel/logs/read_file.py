"""Reads one log file: passes its chunks to the scanner and keeps the offsets of its lines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.evidence.logs.lines.chunk import BLOCK
from ray_sentinel.evidence.logs.lines.times import find_year
from ray_sentinel.evidence.logs.records import FileFacts
from ray_sentinel.evidence.logs.scan import Scanner
from ray_sentinel.logs.find import FoundLog
from ray_sentinel.logs.reading import compression, count_lines, is_binary, open_log, read_chunks
from ray_sentinel.logs.salvage import Salvage, damage_text, reason
from ray_sentinel.logs.unpacking import READ_ERRORS

WHOLE = 24 << 20
"""Most bytes of a file that is read whole for steps, too, if it is looked at closely all over."""
_STEP_HEAD, _STEP_TAIL, _STEP_WINDOW = 256 << 10, 256 << 10, 8 << 10
_STEPS_OF = 32 << 20
"""Bytes from which a file is sampled for steps in a smaller share the larger it is: its facts stay
bounded."""
_ENDS = 64 << 10
_HEAD, _TAIL = 256 << 10, 256 << 10


class Reach(msgspec.Struct, frozen=True):
    """How many bytes at a file's two ends are examined closely."""

    head: int
    tail: int


class FileMap(msgspec.Struct):
    """Where the chunks of a file begin, and how many lines come before each."""

    path: str
    packed: str = ""
    offsets: list[int] = []
    lines: list[int] = []

    def line_number(self, offset: int) -> int | None:
        """The number of the line at ``offset``; None if it is not known any more."""
        chunk = bisect_right(self.offsets, offset) - 1
        if chunk < 0:
            return None
        begin = self.offsets[chunk]
        try:
            with open_log(Path(self.path), self.packed) as opened:
                file = Salvage(opened)
                file.seek(begin)
                return self.lines[chunk] + count_lines(file, offset - begin)
        except READ_ERRORS:
            return None  # it was there a moment ago: rotated away


class FileAnswer(msgspec.Struct):
    """A file's facts and its map."""

    facts: FileFacts
    where: FileMap


def read_file(
    index: int,
    item: FoundLog,
    reach: Reach | None,
    catalogue: Catalogue,
    advance: Callable[[int], None] = lambda size: None,
) -> FileAnswer:
    """Read ``item``, all of it closely or as far as ``reach``. ``advance`` is called with the
    number of bytes read.

    ``problem`` of the facts says what cannot be read; this never raises for a bad file.
    """
    where = FileMap(str(item.path))
    scanner = Scanner(item.file, index, catalogue, _file_year(item.file.modified))
    try:
        where.packed = compression(item.path)
        scanner.year = _dated_year(item.path, where.packed) or scanner.year
        said, problem = _read(item, where, scanner, reach, advance)
    except InputError as error:
        return FileAnswer(FileFacts(file=item.file, problem=str(error)), where)
    except READ_ERRORS as error:
        problem = damage_text(reason(error), "", partly=False)
        return FileAnswer(FileFacts(file=item.file, problem=problem), where)
    facts = scanner.result()
    facts.sampled, facts.problem = said, problem
    return FileAnswer(facts, where)


def _read(
    item: FoundLog,
    where: FileMap,
    scanner: Scanner,
    reach: Reach | None,
    advance: Callable[[int], None],
) -> tuple[str, str]:
    """What was left out, and what could not be read."""
    with open_log(item.path, where.packed) as opened:
        file = Salvage(opened)
        start = file.text_start()
        front = file.read(4096)
        if start and not front and not file.problem:
            raise InputError("holds only zero bytes: its machine may have crashed")
        if is_binary(front):
            raise InputError("is binary, not a log: left out")
        file.seek(start)
        reader = _Reader(scanner, where, reach, None if where.packed else item.file.size)
        for offset, data in read_chunks(file, start):
            reader.feed(offset, data)
            advance(0 if where.packed else len(data))
        reader.finish()
    if not file.problem:
        return reader.said, ""
    return reader.said, damage_text(file.problem, where.packed, partly=bool(where.offsets))


class _Reader:
    """Hands a file's chunks to the scanner, each with a look at what follows it."""

    def __init__(
        self, scanner: Scanner, where: FileMap, reach: Reach | None, size: int | None
    ) -> None:
        self.scanner, self.where, self.reach, self.size = scanner, where, reach, size
        self.waiting: list[tuple[int, bytes]] = []
        self.head, self.tail, self.tail_base = b"", b"", 0
        self.window = _STEP_WINDOW * _STEPS_OF // max(size or 0, _STEPS_OF)
        self.lines = 0
        self.passed = 0
        self.said = ""
        # The size of a packed file is unknown: chunks are held back so that its end is recognised.
        self.keep = 1 if size is not None or reach is None else 3

    def feed(self, offset: int, data: bytes) -> None:
        """The next chunk of whole lines."""
        self.where.offsets.append(offset)
        self.where.lines.append(self.lines)
        self.lines += data.count(b"\n")
        if not self.head:
            self.head = data[:_HEAD]
        self.waiting.append((offset, data))
        while len(self.waiting) > self.keep:
            self._scan_next(final=False)

    def finish(self) -> None:
        """The file's end."""
        while self.waiting:
            self._scan_next(final=True)
        self.scanner.ends(self.head, self.tail, self.tail_base)
        if self.passed:
            self.said = (
                f"its two ends were read closely; of {self.passed / 1e6:.0f} MB in its middle only "
                "some of the lines that share a word were looked at, and the steps were sampled"
            )

    def _scan_next(self, *, final: bool) -> None:
        offset, data = self.waiting.pop(0)
        after = self.waiting[0][1][:BLOCK] if self.waiting else b""
        close = self._is_close(offset, data, final=final)
        self.scanner.feed(data + after if after else data, offset, len(data), thorough=close)
        if not close:
            self.passed += len(data)
        self._sample(offset, data, final=final)
        end = data[-_TAIL:]
        cut = end.find(b"\n") + 1 if len(end) < len(data) else 0
        self.tail, self.tail_base = end[cut:], offset + len(data) - len(end) + cut

    def _is_close(self, offset: int, data: bytes, *, final: bool) -> bool:
        if self.reach is None or offset < self.reach.head or final:
            return True
        return self.size is not None and offset + len(data) > self.size - self.reach.tail

    def _sample(self, offset: int, data: bytes, *, final: bool) -> None:
        if self.reach is None and len(data) + offset <= WHOLE:
            self.scanner.sample(data, offset)
            return
        near_end = final or (self.size is not None and offset + len(data) > self.size - _STEP_TAIL)
        if near_end:
            cut = len(data) - _STEP_TAIL
            start = data.find(b"\n", cut) + 1 if cut > 0 else 0
            self.scanner.sample(data[start:], offset + start)
        else:
            window = self.window if offset else _STEP_HEAD
            self.scanner.sample(data[: data.rfind(b"\n", 0, window) + 1], offset)


def _dated_year(path: Path, packed: str) -> int | None:
    """The year that the file's own full dates give, from its two ends."""
    with open_log(path, packed) as opened:
        file = Salvage(opened)
        text = file.read(_ENDS)
        if not packed:
            file.seek(max(0, path.stat().st_size - _ENDS))
            text += file.read(_ENDS)
    return find_year(text.decode("utf-8", "replace"))


def _file_year(modified: float | None) -> int:
    return datetime.fromtimestamp(modified or 0.0, timezone.utc).year

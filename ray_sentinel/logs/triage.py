"""Reads all logs of a job and asks the analysis what happened.

Small jobs are read whole. Of large files the beginning and the end are looked at closely; the
middle is passed over for a few telling words only, and sampled for steps; the answer says so. If
that names no cause, the files that may hold one are read again in whole, within a bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.logs.analyse import Question, analyse
from ray_sentinel.evidence.logs.catalogue import Catalogue
from ray_sentinel.evidence.logs.records import FileFacts
from ray_sentinel.evidence.logs.scan import BLOCK, Scanner
from ray_sentinel.evidence.logs.times import find_year
from ray_sentinel.logs.checkpoints import newest_checkpoint
from ray_sentinel.logs.find import Found, find_logs
from ray_sentinel.logs.reading import (
    READ_ERRORS,
    compression,
    count_lines,
    is_binary,
    open_log,
    read_chunks,
)
from ray_sentinel.model.triage import Triage

Progress = Callable[[int, int, str], None]
"""(bytes done, bytes in all, the file's label)."""

WHOLE = 24 << 20
"""A job of so many bytes is read whole."""
_CLOSE = 8 << 20
"""Of a larger one, so many bytes are looked at closely, spread over its files."""
_LEAST = 512 << 10
_SECOND_LOOK = 256 << 20
_STEP_HEAD, _STEP_TAIL, _STEP_WINDOW = 256 << 10, 1 << 20, 8 << 10
_ENDS = 64 << 10
_SKIPPED_KINDS = frozenset({"agent"})
_UNSURE = frozenset({"unknown-death", "hang", "running"})


class Reach(msgspec.Struct, frozen=True):
    """How many bytes of a file's two ends are looked at closely; None for all of it."""

    head: int
    tail: int


class FileMap(msgspec.Struct):
    """Where the chunks of a file begin, and how many lines came before."""

    path: Path
    packed: str
    offsets: list[int] = []
    lines: list[int] = []


def triage_path(
    root: Path,
    catalogue: Catalogue,
    *,
    live: bool = False,
    checkpoints: Path | None = None,
    now: float | None = None,
    progress: Progress | None = None,
) -> Triage:
    """Read the logs at or below ``root`` and say what happened. ``now`` defaults to the clock.

    Raises InputError where there is nothing to read.
    """
    found = [f for f in find_logs(root) if f.file.kind not in _SKIPPED_KINDS]
    if not found:
        raise InputError(f"{root}: holds only the monitor's own logs, none of the job")
    now = time.time() if now is None else now
    saved = newest_checkpoint(checkpoints) if checkpoints is not None else None
    question = Question(
        now=now,
        live=live,
        saved_step=saved.step if saved else None,
        saved_at=saved.modified if saved else None,
    )
    job = _Job(found, catalogue, progress)
    total = sum(item.file.size for item in found)
    job.read(_reaches(found, total))
    answer = analyse(job.facts, catalogue, question, job.line_number)
    if answer.sampled and answer.kind in _UNSURE and total <= _SECOND_LOOK:
        job.read([None] * len(found))
        answer = analyse(job.facts, catalogue, question, job.line_number)
    return answer


def _reaches(found: Sequence[Found], total: int) -> list[Reach | None]:
    if total <= WHOLE:
        return [None] * len(found)
    share = max(_LEAST, _CLOSE // len(found))
    head = min(1 << 20, share // 4)
    return [None if item.file.size <= share else Reach(head, share - head) for item in found]


class _Job:
    """The files of one triage, and where their lines are."""

    def __init__(
        self, found: Sequence[Found], catalogue: Catalogue, progress: Progress | None
    ) -> None:
        self.found, self.catalogue, self.progress = found, catalogue, progress
        self.facts: list[FileFacts] = []
        self.maps: list[FileMap] = []
        self.total = sum(item.file.size for item in found)
        self.done = 0

    def read(self, reaches: Sequence[Reach | None]) -> None:
        """Read every file, each so far as its reach says."""
        self.facts, self.maps, self.done = [], [], 0
        for index, (item, reach) in enumerate(zip(self.found, reaches, strict=True)):
            self.facts.append(self._read_one(index, item, reach))

    def _read_one(self, index: int, item: Found, reach: Reach | None) -> FileFacts:
        self.maps.append(FileMap(item.path, ""))
        scanner = Scanner(item.file, index, self.catalogue, _year(item.file.modified))
        try:
            packed = compression(item.path)
            scanner.year = _dated_year(item.path, packed) or scanner.year
            self.maps[index] = FileMap(item.path, packed)
            with open_log(item.path, packed) as file:
                front = file.read(4096)
                if is_binary(front):
                    self._advance(item, item.file.size)
                    return FileFacts(file=item.file, problem="is binary, not a log: left out")
                file.seek(0)
                size = item.file.size if not packed else None
                reader = _FileReader(scanner, self.maps[index], reach, size)
                for offset, data, last in read_chunks(file):
                    reader.take(offset, data, last=last)
                    self._advance(item, len(data) if not packed else 0)
                reader.finish()
        except InputError as error:
            return FileFacts(file=item.file, problem=str(error))
        except READ_ERRORS as error:
            facts = scanner.result()
            facts.problem = f"could be read only in part ({error}); what was read is used"
            return facts
        facts = scanner.result()
        facts.sampled = reader.said
        return facts

    def _advance(self, item: Found, size: int) -> None:
        self.done += size
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total, item.file.label)

    def line_number(self, index: int, offset: int) -> int | None:
        """The number of the line at ``offset`` of a file; None where it cannot be told."""
        where = self.maps[index]
        chunk = max((n for n, at in enumerate(where.offsets) if at <= offset), default=None)
        if chunk is None:
            return None
        begin = where.offsets[chunk]
        try:
            with open_log(where.path, where.packed) as file:
                file.seek(begin)
                return where.lines[chunk] + count_lines(file, offset - begin)
        except READ_ERRORS:
            return None  # it was there a moment ago: rotated away


class _FileReader:
    """Hands a file's chunks to the scanner, each with a look at what follows it."""

    def __init__(
        self, scanner: Scanner, where: FileMap, reach: Reach | None, size: int | None
    ) -> None:
        self.scanner, self.where, self.reach, self.size = scanner, where, reach, size
        self.waiting: list[tuple[int, bytes]] = []
        self.head, self.tail, self.tail_base = b"", b"", 0
        self.lines = 0
        self.passed = 0
        self.said = ""

    def take(self, offset: int, data: bytes, *, last: bool) -> None:
        """The next chunk of whole lines."""
        self.where.offsets.append(offset)
        self.where.lines.append(self.lines)
        self.lines += data.count(b"\n")
        if not self.head:
            self.head = data[: 256 << 10]
        self.waiting.append((offset, data))
        keep = 1 if self.size is not None else self._kept()
        while len(self.waiting) > keep:
            self._look(final=False)

    def _kept(self) -> int:
        """Of a packed file the size is unknown: hold chunks back, so that its end is known."""
        return 1 if self.reach is None else 3

    def finish(self) -> None:
        """The file's end."""
        while self.waiting:
            self._look(final=True)
        self.scanner.ends(self.head, self.tail, self.tail_base)
        if self.passed:
            self.said = (
                f"its two ends were read closely; {self.passed / 1e6:.0f} MB in its middle were "
                "searched for the most telling words only, and sampled for steps"
            )

    def _look(self, *, final: bool) -> None:
        offset, data = self.waiting.pop(0)
        after = self.waiting[0][1][:BLOCK] if self.waiting else b""
        close = self._is_close(offset, data, final=final)
        self.scanner.feed(data + after if after else data, offset, len(data), thorough=close)
        if not close:
            self.passed += len(data)
        self._sample(offset, data, final=final)
        end = data[-(256 << 10) :]
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
            start = data.find(b"\n", max(0, len(data) - _STEP_TAIL)) + 1
            self.scanner.sample(data[start:], offset + start)
        elif offset == 0:
            self.scanner.sample(data[: data.rfind(b"\n", 0, _STEP_HEAD) + 1], 0)
        else:
            self.scanner.sample(data[: data.rfind(b"\n", 0, _STEP_WINDOW) + 1], offset)


def _dated_year(path: Path, packed: str) -> int | None:
    """The year that the file's own full dates give, from its two ends."""
    with open_log(path, packed) as file:
        text = file.read(_ENDS)
        if not packed:
            file.seek(max(0, path.stat().st_size - _ENDS))
            text += file.read(_ENDS)
    return find_year(text.decode("utf-8", "replace"))


def _year(modified: float | None) -> int:
    when = datetime.fromtimestamp(modified or 0.0, timezone.utc)
    return when.year

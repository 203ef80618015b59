"""From a log's bytes to its facts, fast: cheap passes find the lines worth a look.

A file is handed in as chunks. In each, every trigger word is looked for, and only the lines found
are decoded and matched against the catalogue (``trouble``). Lines of equal shape (digits aside)
that matched nothing are soon skipped, so that chatter costs little. Windows of the file are read
for steps and phases (``movement``).
"""

from __future__ import annotations

from ray_sentinel.evidence.logs import facts as header
from ray_sentinel.evidence.logs.bare_steps import surest
from ray_sentinel.evidence.logs.catalogue import Catalogue
from ray_sentinel.evidence.logs.chunk import (
    MAX_LINE,
    Chunk,
    first_time,
    last_times,
    long_lines,
    one_a_line,
    split_lines,
)
from ray_sentinel.evidence.logs.error_scanner import Trouble
from ray_sentinel.evidence.logs.lines import parse_line
from ray_sentinel.evidence.logs.movement import MovementReader
from ray_sentinel.evidence.logs.records import FileFacts, LogFile
from ray_sentinel.evidence.logs.workers import listed_workers

_MOST_LINES, _MOST_SWIFT = 20_000, 50
"""Lines of one chunk that a single word may call up, from its front and from its end: where it is
looked at closely, and elsewhere."""
_FRONT, _FRONT_LINES, _BACK = 65_536, 400, 262_144
"""Where the file's first and last time are looked for, in bytes and lines."""
_LAST_TIMES = 8


class Scanner:
    """Collects the facts of one file. Feed it the file's chunks in order."""

    def __init__(self, file: LogFile, index: int, catalogue: Catalogue, year: int) -> None:
        self.catalogue, self.year = catalogue, year
        self.out = FileFacts(file=file)
        self._trouble = Trouble(self.out, index, catalogue)
        self._movement = MovementReader(self.out, catalogue.marks)

    def feed(self, data: bytes, base: int, limit: int, *, thorough: bool = True) -> None:
        """Look at the lines of ``data`` that begin before ``limit``; what follows is only context.

        ``base`` is the file's offset of ``data[0]``, which must be a line's first byte.
        """
        chunk = self._chunk(data, base)
        self.out.long_lines += long_lines(chunk.data[:limit])
        most = _MOST_LINES if thorough else _MOST_SWIFT
        for start, at in self.catalogue.triggers.lines(chunk.data.lower(), limit, most):
            self._trouble.look(chunk, start, at)
        self._trouble.forget_before(base + limit)

    def sample(self, data: bytes, base: int) -> None:
        """Read the steps, the phases and the list of workers in a window of the file."""
        self.out.people.extend(listed_workers(data))
        self._movement.read(self._chunk(data, base))

    def ends(self, head: bytes, tail: bytes, tail_base: int) -> None:
        """Note when the file begins and ends, and what its header says."""
        out = self.out
        out.first_time = first_time(head[:_FRONT].split(b"\n")[:_FRONT_LINES], self.year)
        out.last_times = last_times(tail[-_BACK:].split(b"\n"), self.year, _LAST_TIMES)
        out.last_time = out.last_times[0] if out.last_times else None
        lines = [(at, raw) for at, raw in split_lines(one_a_line(tail)) if raw.strip()]
        if lines:
            at, raw = lines[-1]
            out.last_line = parse_line(raw[:MAX_LINE].decode("utf-8", "replace")).text
            out.last_offset = tail_base + at
        out.facts = header.read_header(head)

    def result(self) -> FileFacts:
        """The facts of everything fed."""
        self.out.hits = self._trouble.hits.kept()
        self.out.counts = self._trouble.hits.counts
        if self._movement.counts_by_ends:
            self.out.steps = [seen for seen in self.out.steps if not seen.step.per_epoch]
        self.out.steps.sort(key=lambda seen: seen.offset)
        self.out.steps = surest(self.out.steps, lambda seen: seen.step)
        self.out.phases.sort(key=lambda seen: seen.offset)
        return self.out

    def _chunk(self, data: bytes, base: int) -> Chunk:
        return Chunk(data=one_a_line(data), base=base, year=self.year)

"""Turns a launcher's report of the processes that ended into hits."""

from __future__ import annotations

from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.evidence.logs.errors.exits import (
    TABLE_MARKS,
    ProcessExit,
    exit_signature,
    killed_by_launcher,
    read_row,
    read_table,
    signal_name,
    table_end,
)
from ray_sentinel.evidence.logs.errors.hitlist import HitList
from ray_sentinel.evidence.logs.lines.chunk import Chunk, When
from ray_sentinel.evidence.logs.lines.lines import Origin, ScannedLine
from ray_sentinel.evidence.logs.records import FileFacts, Hit


class ExitHits:
    """Adds the rows of torchrun's tables in one file to its hits and processes."""

    def __init__(self, out: FileFacts, index: int, catalogue: Catalogue, hits: HitList) -> None:
        self._out, self._index, self._catalogue, self._hits = out, index, catalogue, hits

    def table(self, chunk: Chunk, start: int) -> list[int]:
        """The offsets in the file of the lines of the table that begins at ``start``; none if there
        is no table."""
        offsets, lines = chunk.window(start)
        rows = read_table(lines, 0, chunk.year)
        for row in rows:
            name = "exit-by-launcher" if killed_by_launcher(row, rows) else exit_signature(row.code)
            self._add(row, name, lines[row.index], chunk, offsets[row.index])
        if not rows:
            return []
        last = table_end(lines, max(row.index for row in rows))
        return [chunk.base + offset for offset in offsets[: last + 1]]

    def folded_row(self, line: ScannedLine, chunk: Chunk, start: int) -> bool:
        """Whether ``line`` is a row of a table that a log service joined into one line."""
        root = TABLE_MARKS[0] in chunk.line_before(start).text
        row = read_row(line.text, chunk.year, root=root)
        if row is not None:
            self._add(row, exit_signature(row.code), line, chunk, start)
        return row is not None

    def _add(
        self, row: ProcessExit, name: str, line: ScannedLine, chunk: Chunk, start: int
    ) -> None:
        origin = Origin(
            rank=row.rank,
            local_rank=row.local_rank,
            pid=row.pid,
            host=row.host,
            task=line.origin.task,
        )
        self._out.processes.append(origin)
        code = "an unknown code" if row.code is None else f"exit code {row.code}"
        what = signal_name(row.code) or code
        when = chunk.when(line.text, start, far=True)
        if row.time is not None:
            when = When(time=row.time, own_time=True)
        text = f"rank {row.rank} on {row.host or '?'} (pid {row.pid}) ended with {what}"
        self._hits.add(
            Hit(
                file=self._index,
                offset=chunk.base + start,
                text=f"{text}: {row.message}" if row.message else text,
                signature=self._catalogue.get(name),
                origin=origin,
                exit=row,
                time=when.time,
                own_time=when.own_time,
                next_time=when.next_time,
            )
        )

"""What the logs of this node's Ray session show now: NCCL's transport, and the last errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.evidence.node.transport import HINTS, read_transport
from ray_sentinel.logs.find import FoundLog, find_logs
from ray_sentinel.logs.follow import last_lines
from ray_sentinel.logs.reading import compression, open_log, read_chunks
from ray_sentinel.logs.select import LineFilter, describe
from ray_sentinel.logs.unpacking import READ_ERRORS
from ray_sentinel.masking import mask
from ray_sentinel.model.health import TransportLines
from ray_sentinel.model.triage import LogLine
from ray_sentinel.text import one_line

_KINDS = frozenset({"worker", "driver", "rank", "nccl", "log", "slurm"})
_FRONT = 8 << 20
"""Bytes at the start of a log that are searched: NCCL tells its transport while it starts."""
_ERRORS = 8
"""Errors that are shown, the last ones."""
_MOST_FILES = 400
"""Most files that are read, those written to last: Ray keeps a file for each worker that ever
was."""
_OURS = " ray_sentinel."
"""Mark of the lines of our own actors, which log into the same session."""


def transport_lines(session: Path) -> TransportLines:
    """NCCL's lines on its transport in the logs at or below ``session``; empty without any."""
    return read_transport(_lines_with_hints(_newest(session)))


def last_errors(session: Path, catalogue: Catalogue) -> tuple[LogLine, ...]:
    """The last lines that report trouble, masked."""
    files = describe(_newest(session))
    shown = last_lines(files, LineFilter(), catalogue, _ERRORS, errors=True)
    return tuple(
        LogLine(
            file=item.label,
            line=None,
            text=one_line(item.line.text, 400),
            note=item.line.kind or "error",
        )
        for item in shown
        if item.line.mark == "error" and _OURS not in item.line.text
    )[-_ERRORS:]


def _newest(session: Path) -> list[FoundLog]:
    try:
        found = [item for item in find_logs(session) if item.file.kind in _KINDS]
    except InputError:
        return []  # a session without a log yet
    return sorted(found, key=lambda item: -(item.file.modified or 0.0))[:_MOST_FILES]


def _lines_with_hints(files: list[FoundLog]) -> Iterator[LogLine]:
    for item in files:
        try:
            with open_log(item.path, compression(item.path)) as file:
                for _, data in read_chunks(_Front(file)):
                    if any(hint in data for hint in HINTS):
                        yield from _hinting(item.file.label, data)
        except (InputError, *READ_ERRORS):
            continue  # rotated away, or not text: the others may still show it


class _Front:
    """The first ``_FRONT`` bytes of a log, as if it ended there: a line may be endless."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, _FRONT

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes."""
        data = self._file.read(min(size, self._left))
        self._left -= len(data)
        return data

    def seek(self, at: int, /) -> None:
        """Continue at ``at``."""
        self._file.seek(at)
        self._left = _FRONT - at


def _hinting(label: str, data: bytes) -> Iterator[LogLine]:
    for raw in data.splitlines():
        if any(hint in raw for hint in HINTS):
            text = mask(one_line(raw.decode("utf-8", "replace"), 400))
            yield LogLine(file=label, line=None, text=text)

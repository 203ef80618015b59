"""Our own log files: ``logs/<name>.log``, rotated; Ray's log of the actor contains the lines too.

Logging must not wait for a disk, because the threads that watch, report and decide all log. So the
records go through a bounded queue, one for our file and one for Ray's, see ``log_files``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from ray_sentinel.log_files import LineWriter, LogFiles
from ray_sentinel.masking import mask

MAX_BYTES = 8 << 20
"""Most bytes of one log file; then it is rotated."""
BACKUPS = 2
"""How many rotated files are kept beside it."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class MaskingFormatter(logging.Formatter):
    """Masks secrets in whatever is logged: a job's text, an error's, a traceback's."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one text."""
        return mask(super().format(record))


class _Queued(logging.Handler):
    """Formats a record and hands it on, without waiting."""

    def __init__(self, lines: LineWriter, name: str) -> None:
        super().__init__()
        self._lines, self._name = lines, name

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.write(self._name, self.format(record))

    def close(self) -> None:
        self._lines.close()
        super().close()


def write_logs(folder: Path | None, name: str) -> Callable[[], str]:
    """Send the package's log records to ``folder/name.log`` and to stderr, from INFO on. Returns a
    function that says why lines are missing; empty if none are."""
    logger = logging.getLogger("ray_sentinel")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for old in list(logger.handlers):
        logger.removeHandler(old)
    writers: list[LineWriter] = [LineWriter(_to_stderr, "the actor's standard error")]
    if folder is not None:
        writers.append(LogFiles(folder, max_bytes=MAX_BYTES, backups=BACKUPS))
    for writer in writers:
        handler = _Queued(writer, name)
        handler.setFormatter(MaskingFormatter(_FORMAT))
        logger.addHandler(handler)
    return lambda: "; ".join(filter(None, (writer.problem for writer in writers)))


def _to_stderr(_name: str, data: bytes) -> None:
    sys.stderr.write(data.decode("utf-8", "replace"))
    sys.stderr.flush()

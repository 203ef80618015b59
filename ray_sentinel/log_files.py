"""Log lines on their way to a disk that may hang: a bounded queue, and a thread that writes.

Whoever writes a line never waits. While the disk hangs or is full, lines are kept up to
``WAITING_BYTES`` and then dropped and counted; the file says where lines are missing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ray_sentinel.config import safe_name

WAITING_BYTES = 4 << 20
"""Most bytes of lines that wait to be written; lines beyond that are lost, and counted."""
LINE_BYTES = 64 << 10
"""Most bytes of one line; the rest of a longer line is cut off."""
LINE_OVERHEAD = 120
"""Bytes that a waiting line takes besides its text."""
BATCH_BYTES = 256 << 10
"""Most bytes that are written at once."""
HANGS_SECONDS = 5.0
"""Seconds after which a write that has not ended is reported."""
RETRY_SECONDS = 15.0
"""Seconds until a failed write is tried again, even if no further line comes: otherwise a program
that logs once an hour would be reported for an hour because of a disk that has room again."""


class LineWriter:
    """Hands lines to ``append(name, data)`` on a thread of its own. Any thread may call.

    ``append`` may block for ever, or raise OSError.
    """

    def __init__(
        self,
        append: Callable[[str, bytes], None],
        where: str,
        *,
        waiting_bytes: int = WAITING_BYTES,
        batch_bytes: int = BATCH_BYTES,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        """``where`` is the name by which people know the place."""
        self._retry = retry_seconds
        self._append, self._where, self._most = append, where, waiting_bytes
        self._batch = batch_bytes
        self._change = threading.Condition()
        self._lines: deque[tuple[str, bytes]] = deque()
        self._bytes = 0
        self._closed = False
        self._busy_since: float | None = None
        self._dropped_since = 0
        self._last: tuple[str, ...] = ()
        """Names that lines were written for last."""
        self._error = ""
        self._refused: dict[str, int] = {}
        """By name, the number of lines that could not be written since others were."""
        self._thread: threading.Thread | None = None
        self.dropped = 0
        """Lines that were lost so far."""

    def write(self, name: str, line: str) -> None:
        """Take a line for ``name``. Never waits, never raises."""
        data = line.encode("utf-8", "backslashreplace")
        if len(data) > LINE_BYTES:
            data = data[:LINE_BYTES] + b" [cut off]"
        with self._change:
            if self._closed:
                return
            size = len(data) + LINE_OVERHEAD
            if self._bytes + size > self._most:
                self.dropped += 1
                self._dropped_since += 1
                return
            self._lines.append((name, data + b"\n"))
            self._bytes += size
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="ray-sentinel-log", daemon=True
                )
                self._thread.start()
            self._change.notify_all()

    @property
    def problem(self) -> str:
        """What people should know: that lines are missing or cannot be written; else empty."""
        since, error, dropped = self._busy_since, self._error, self.dropped
        lost = f"; {dropped} lines of log were lost" if dropped else ""
        if since is not None and time.monotonic() - since > HANGS_SECONDS:
            return f"{self._where} does not answer: logs wait for it{lost}"
        if error:
            return f"logs cannot be written to {self._where} ({error}){lost}"
        return f"{dropped} lines of log were lost: {self._where} was slow" if dropped else ""

    def close(self, seconds: float = 1.0) -> None:
        """Take no more lines, and wait at most ``seconds`` for the queued ones to be written."""
        with self._change:
            self._closed = True
            self._change.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._change:
                self._wait()
                lines = self._next_batch()
                dropped, self._dropped_since = self._dropped_since, 0
                if not lines and self._closed and (not dropped or self._error):
                    return
            self._busy_since = time.monotonic()
            self._write_lines(lines, dropped)
            self._busy_since = None
            with self._change:
                # What is being written counts until it is.
                self._bytes -= sum(len(data) - 1 + LINE_OVERHEAD for _, data in lines)

    def _wait(self) -> None:
        """Wait until there is something to write, or the disk must be tried again."""
        if self._error:
            self._change.wait_for(lambda: self._lines or self._closed, self._retry)
        else:
            self._change.wait_for(lambda: self._lines or self._dropped_since or self._closed)

    def _next_batch(self) -> list[tuple[str, bytes]]:
        """The first lines that wait, of one batch."""
        lines: list[tuple[str, bytes]] = []
        room = self._batch
        while self._lines and (not lines or len(self._lines[0][1]) <= room):
            lines.append(self._lines.popleft())
            room -= len(lines[-1][1])
        return lines

    def _write_lines(self, lines: list[tuple[str, bytes]], dropped: int) -> None:
        # If nothing else waits to be written, the loss is noted where it happened, or where the
        # last lines went.
        silent = dict.fromkeys(self._refused or self._last)
        texts: dict[str, list[bytes]] = {} if lines else {name: [] for name in silent}
        for name, data in lines:
            texts.setdefault(name, []).append(data)
        self._last = tuple(texts)
        error = ""
        for name, parts in texts.items():
            refused = self._refused.pop(name, 0)
            before = _lost(refused, "the disk refused them")
            after = _lost(dropped, "the disk was slow")
            try:
                self._append(name, before + b"".join(parts) + after)
            except (OSError, ValueError) as failure:  # a closed stream raises the latter
                with self._change:
                    self.dropped += len(parts)
                self._refused[name] = refused + len(parts) + dropped
                error = getattr(failure, "strerror", None) or str(failure)
        # As long as a file does not show its loss, writing is tried again.
        self._error = error or (self._error if self._refused else "")


def _lost(count: int, why: str) -> bytes:
    return f"({count} lines were lost: {why})\n".encode() if count else b""


class LogFiles(LineWriter):
    """Lines go to ``folder/NAME.log``; a full file becomes ``NAME.log.1``, and so on."""

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int,
        backups: int = 1,
        waiting_bytes: int = WAITING_BYTES,
    ) -> None:
        """``max_bytes`` is the size of one file, ``backups`` the number of older ones that are
        kept."""
        batch = min(BATCH_BYTES, max_bytes // 2)
        super().__init__(
            self._append_to, str(folder), waiting_bytes=waiting_bytes, batch_bytes=batch
        )
        self._folder, self._max_bytes, self._backups = folder, max_bytes, backups

    def _append_to(self, name: str, data: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{safe_name(name)}.log"
        if path.exists() and path.stat().st_size + len(data) > self._max_bytes:
            for number in range(self._backups, 0, -1):
                older = path.with_name(f"{path.name}.{number}")
                newer = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
                if newer.exists():
                    newer.replace(older)
        with path.open("ab") as file:
            file.write(data)

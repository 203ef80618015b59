"""One bounded log file per collector, written by a thread of its own.

The folder may lie on a shared file system that hangs; then lines are dropped and counted, and
nothing else waits.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from queue import Empty, Full, Queue

from ray_sentinel.config import safe_name

MAX_BYTES = 1 << 20
"""Of one file; the one before it is kept as ``.1``, so a collector has at most twice as much."""
_QUEUE = 10_000

log = logging.getLogger(__name__)


class Logbook:
    """Lines go to ``folder/collector-NAME.log``; None writes nothing."""

    def __init__(self, folder: Path | None, *, max_bytes: int = MAX_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes
        self._queue: Queue[tuple[float, str, str] | None] = Queue(_QUEUE)
        self._dropped = 0
        self._complained = False
        self._thread = threading.Thread(target=self._serve, name="collector-logs", daemon=True)
        if folder is not None:
            self._thread.start()

    def write(self, name: str, text: str) -> None:
        """Note a line of collector ``name``; never waits."""
        if self._folder is None:
            return
        try:
            self._queue.put_nowait((time.time(), name, text))
        except Full:
            self._dropped += 1

    def close(self, timeout: float = 1.0) -> None:
        """Write what is waiting, for at most ``timeout`` seconds."""
        if self._folder is not None:
            try:
                self._queue.put(None, timeout=timeout)
            except Full:
                return
            self._thread.join(timeout)

    def _serve(self) -> None:
        while (first := self._queue.get()) is not None:
            batch, ended = [first], False
            try:
                while not ended and len(batch) < 1000:
                    entry = self._queue.get_nowait()
                    ended = entry is None
                    if entry is not None:
                        batch.append(entry)
            except Empty:
                pass
            self._write(batch)
            if ended:
                return

    def _write(self, batch: list[tuple[float, str, str]]) -> None:
        lines: dict[str, list[str]] = {}
        for moment, name, text in batch:
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
            lines.setdefault(name, []).append(f"{stamp} {text}\n")
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            for entries in lines.values():
                entries.append(f"({dropped} lines of all collectors were lost: the disk is slow)\n")
        for name, entries in lines.items():
            self._append(name, "".join(entries))

    def _append(self, name: str, text: str) -> None:
        try:
            self._append_to(name, text)
        except OSError as error:
            if not self._complained:
                log.warning("%s: the collectors' logs cannot be written: %s", self._folder, error)
            self._complained = True

    def _append_to(self, name: str, text: str) -> None:
        assert self._folder is not None  # the thread runs only then
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"collector-{safe_name(name)}.log"
        data = text.encode("utf-8", "backslashreplace")[-self._max_bytes :]
        if path.exists() and path.stat().st_size + len(data) > self._max_bytes:
            path.replace(path.with_name(path.name + ".1"))
        with path.open("ab") as file:
            file.write(data)

"""The event log's way to the disk: a thread of its own, for a log folder that hangs must not hold
up a verdict."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from queue import Full, Queue

from ray_sentinel.actors.eventlog import EventLog
from ray_sentinel.clock import Clock
from ray_sentinel.engine.events import AnyEvent
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.memory import Memory

log = logging.getLogger(__name__)

MOST_WAITING = 20_000
"""Events that may wait for a slow disk; what comes then is not logged."""
RETRY_SECONDS = 30.0
"""After the log could not be written."""
_NO_JSON = (ValueError, TypeError, OverflowError, RecursionError)
"""What an event raises that JSON or UTF-8 cannot hold."""


_Item = tuple[int, AnyEvent, tuple[Incident, ...], Memory | None]


class LogWriter:
    """Writes events on a thread of its own, in order; goes on after a full disk."""

    def __init__(self, folder: Path | None, max_bytes: int, clock: Clock, after: int = 0) -> None:
        self.problem = ""
        self.done = 0
        """Number of the last event that was written or given up."""
        self._folder = folder
        self._max_bytes = max_bytes
        self._after = after
        self._clock = clock
        self._lost = ""
        self._log: EventLog | None = None
        self._retry_at = 0.0
        self._count = 0
        self._begun = 0
        """Number of the last event that came with a memory."""
        self._queue: Queue[_Item | None] = Queue(MOST_WAITING)
        self._thread = threading.Thread(
            target=self._run, name="ray-sentinel-event-log", daemon=True
        )
        self._thread.start()

    @property
    def begins(self) -> bool:
        """A segment is to begin: ``put`` wants a memory. One that waits for the disk is enough."""
        if self._folder is None or self.done < self._begun:
            return False
        if self._clock.monotonic() < self._retry_at:
            return False
        return self._log is None or self._log.begins

    def put(
        self, event: AnyEvent, incidents: tuple[Incident, ...], memory: Memory | None = None
    ) -> int:
        """Take an event for writing; returns its number. The others were known before it."""
        self._count += 1
        try:
            self._queue.put_nowait((self._count, event, incidents, memory))
            self._begun = self._count if memory is not None else self._begun
        except Full:
            self.problem = f"the event log does not keep up: {self._folder} is slow or hangs"
        return self._count

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            number, event, incidents, memory = item
            if self._clock.monotonic() >= self._retry_at:
                self._write(event, incidents, memory)
            self.done = number

    def _write(
        self, event: AnyEvent, incidents: tuple[Incident, ...], memory: Memory | None
    ) -> None:
        if self._folder is None:
            return
        try:
            if self._log is None:
                self._log = EventLog(self._folder, max_bytes=self._max_bytes, after=self._after)
            self._log.append(event, incidents, memory)
            self.problem = self._lost
        except OSError as error:
            self._retry_at = self._clock.monotonic() + RETRY_SECONDS
            self.problem = (
                f"the event log in {self._folder} cannot be written ({error.strerror}): what "
                "happens now is kept in memory only; make room or set log_dir elsewhere"
            )
            log.warning("%s", self.problem)
        except _NO_JSON as error:
            log.exception("an event is not in the log")
            self._lost = f"a {type(event).__name__} is not in the event log: {error}"
            self.problem = self._lost

    def close(self) -> None:
        """Write what waits, within a second."""
        try:
            self._queue.put(None, timeout=1.0)
        except Full:
            return
        self._thread.join(timeout=1.0)
        if self._log is not None and not self._thread.is_alive():
            self._log.close()

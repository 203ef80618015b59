"""The engine with what it needs around it: a lock, the time, the event log, and its actions' way.

Events come from agents, from the reconciler, from tools and from a timer, on any thread; they are
handled one at a time. The log is written by a thread of its own: a log folder that hangs must not
hold up a verdict.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Full, Queue

import msgspec

from ray_sentinel.actors.eventlog import EventLog
from ray_sentinel.clock import Clock
from ray_sentinel.engine.actions import AnyAction
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus, State

log = logging.getLogger(__name__)

MOST_WAITING = 20_000
"""Events that may wait for a slow disk; what comes then is not logged."""
RETRY_SECONDS = 30.0


class Brain:
    """Owns the engine. ``feed`` may be called from any thread."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        act: Callable[[AnyAction], None],
        folder: Path | None,
        max_log_bytes: int,
        after: int = 0,
    ) -> None:
        """The log goes to ``folder``, and its headers say ``after`` (see ``eventlog.Header``)."""
        self._engine = engine
        self._clock = clock
        self._act = act
        self._lock = threading.Lock()
        self._last = 0.0
        self._failure = ""
        self._writer = LogWriter(folder, max_log_bytes, clock, after)

    def feed(self, event: AnyEvent) -> int:
        """Handle one event; its time is made to never go back. Returns its number in the log."""
        with self._lock:
            self._last = max(self._last, event.time)
            if event.time < self._last:
                event = msgspec.structs.replace(event, time=self._last)
            actions = self._handled(event)
            number = self._writer.put(event, self._engine.incidents(everything=True))
            # Under the lock, so that actions keep the order of their events; it only queues them.
            for action in actions:
                self._act(action)
        return number

    def _handled(self, event: AnyEvent) -> list[AnyAction]:
        try:
            actions = self._engine.handle(event)
        except Exception as error:  # a rule's mistake must not end the watch, nor pass unseen
            log.exception("the engine failed on %s", type(event).__name__)
            self._failure = (
                f"the engine failed on {type(event).__name__} ({type(error).__name__}: {error}): "
                "the coordinator's log has the traceback, the event log the way there"
            )
            return []
        return actions

    def written(self, number: int) -> bool:
        """Whether the event with this number is in the log, or never will be."""
        return self._writer.done >= number

    def now(self) -> float:
        """The coordinator's time."""
        return self._clock.now()

    def incidents(self) -> tuple[Incident, ...]:
        """All confirmed incidents, the newest last."""
        with self._lock:
            return self._engine.incidents()

    def status(self) -> tuple[State, str, tuple[JobStatus, ...]]:
        """State, sentence and jobs."""
        with self._lock:
            return self._engine.status(self._clock.now())

    def learned_phases(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """What is known of every job's phases: job → phase → seconds."""
        with self._lock:
            return self._engine.view.learned()

    def notes(self) -> tuple[str, ...]:
        """What is wrong with the engine or the log."""
        return tuple(filter(None, (self._failure, self._writer.problem)))

    def close(self) -> None:
        """Write what waits."""
        self._writer.close()


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
        self._log: EventLog | None = None
        self._retry_at = 0.0
        self._count = 0
        self._queue: Queue[tuple[int, AnyEvent, tuple[Incident, ...]] | None] = Queue(MOST_WAITING)
        self._thread = threading.Thread(
            target=self._run, name="ray-sentinel-event-log", daemon=True
        )
        self._thread.start()

    def put(self, event: AnyEvent, incidents: tuple[Incident, ...]) -> int:
        """Take an event for writing; returns its number."""
        self._count += 1
        try:
            self._queue.put_nowait((self._count, event, incidents))
        except Full:
            self.problem = f"the event log does not keep up: {self._folder} is slow or hangs"
        return self._count

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            if item is None:
                return
            number, event, incidents = item
            if self._clock.monotonic() >= self._retry_at:
                self._write(event, incidents)
            self.done = number

    def _write(self, event: AnyEvent, incidents: tuple[Incident, ...]) -> None:
        if self._folder is None:
            return
        try:
            if self._log is None:
                self._log = EventLog(self._folder, max_bytes=self._max_bytes, after=self._after)
            self._log.append(event, incidents)
            self.problem = ""
        except OSError as error:
            self._retry_at = self._clock.monotonic() + RETRY_SECONDS
            self.problem = (
                f"the event log in {self._folder} cannot be written ({error.strerror}): what "
                "happens now is kept in memory only; make room or set log_dir elsewhere"
            )
            log.warning("%s", self.problem)

    def close(self) -> None:
        """Write what waits, within a second."""
        try:
            self._queue.put(None, timeout=1.0)
        except Full:
            return
        self._thread.join(timeout=1.0)
        if self._log is not None and not self._thread.is_alive():
            self._log.close()

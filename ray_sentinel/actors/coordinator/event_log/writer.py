"""Writes the event log on a thread of its own, because a log folder that hangs must not delay a
verdict.

The queue is bounded in bytes. When it is full, whole events are dropped until half of it is free
again; the log then continues with a segment that begins with the complete state and says how many
events are missing before it. So a replay is right on both sides of a gap.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from pathlib import Path
from typing import NamedTuple

from ray_sentinel.actors.coordinator.event_log.evidence_files import detached
from ray_sentinel.actors.coordinator.event_log.log import EventLog, encoded
from ray_sentinel.actors.coordinator.memory import return_free_memory
from ray_sentinel.clock import Clock
from ray_sentinel.config import CoordinatorConfig
from ray_sentinel.engine.events import AnyEvent, KeptEvidence
from ray_sentinel.engine.state import StateCut

log = logging.getLogger(__name__)

ITEM_OVERHEAD = 300
"""Bytes that a waiting event takes in addition to its line."""
RETRY_SECONDS = 30.0
"""Seconds until the next attempt after the log could not be written."""
_NO_JSON = (ValueError, TypeError, OverflowError, RecursionError)
"""Errors that an event raises which JSON or UTF-8 cannot represent."""


class _Item(NamedTuple):
    number: int
    time: float
    line: bytes
    """The event; empty for one that cannot be written."""
    state: StateCut | None
    """The engine's snapshot before it; None where it came without."""
    lost: int
    """How many events were left out before it."""
    size: int
    evidence: KeptEvidence | None = None
    """The evidence that goes into a file before the line."""


class LogWriter:
    """Writes events on a thread of its own, in order; goes on after a full disk."""

    def __init__(
        self,
        folder: Path | None,
        max_bytes: int,
        clock: Clock,
        *,
        waiting_bytes: int = CoordinatorConfig().log_waiting_bytes,
        clock_offset: float = 0.0,
    ) -> None:
        self.problem = ""
        """What is wrong now; empty if nothing is."""
        self.reduced = ""
        """What the newest segment lacks of the engine's state."""
        self.done = 0
        """Number of the last event that was written or given up."""
        self.missing = 0
        """How many events the disk did not take."""
        self.most_waiting = waiting_bytes
        """Most bytes of events that wait while the disk is slow."""
        self._folder = folder
        self._max_bytes = max_bytes
        self._clock_offset = clock_offset
        self._clock = clock
        self._lost = ""
        self._log: EventLog | None = None
        self._retry_at = 0.0
        self._count = 0
        self._begun = 0
        """Number of the last event that came with a state."""
        self._gap = 0
        """How many events were left out since the last one that was accepted."""
        self._unwritten = 0
        """How many events could not be written since the last one that was."""
        self._change = threading.Condition()
        self._items: deque[_Item] = deque()
        self._bytes = 0
        self._closed = False
        self._thread = threading.Thread(
            target=self._run, name="ray-sentinel-event-log", daemon=True
        )
        self._thread.start()

    @property
    def begins(self) -> bool:
        """Whether a new segment is due, so that ``put`` needs a state. One that waits for the disk
        is enough."""
        if self._folder is None:
            return False
        if self._gap:
            return self._bytes <= self.most_waiting // 2
        if self.done < self._begun or self._clock.monotonic() < self._retry_at:
            return False
        return self._log is None or self._log.begins

    @property
    def waiting_bytes(self) -> int:
        """Bytes of events that wait for the disk, or are being written."""
        return self._bytes

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems for people."""
        removed = self._log.removed if self._log is not None else 0
        by_others = (
            f"{removed} events are missing in the event log: somebody removed or changed their "
            f"file in {self._folder}"
        )
        others = (by_others,) if removed else ()
        lost = f"{self.missing} events are missing in the event log" if self.missing else ""
        if self.problem:
            return (f"{self.problem}; {lost}" if lost else self.problem, *others)
        if lost:
            return (f"{lost}: {self._folder} did not take them in time", *others)
        return others

    def put(self, event: AnyEvent, state: StateCut | None = None) -> int:
        """Queue an event, and the engine's snapshot before it. Returns the event's number."""
        if self._folder is None:
            self._count += 1
            self.done = self._count
            return self._count
        event, evidence = detached(event)
        line = self._encoded(event)
        # The size is without the state, which is large for a large job.
        size = len(line) + ITEM_OVERHEAD
        with self._change:
            self._count += 1
            wanting = self._gap and state is None
            if wanting or (self._bytes and self._bytes + size > self.most_waiting):
                self._gap += 1
                self.missing += 1
                self.problem = f"the event log does not keep up: {self._folder} is slow or hangs"
                return self._count
            if evidence is not None and self._bytes + len(evidence.data) > self.most_waiting // 2:
                evidence = None  # the events that follow need the room more
            size += len(evidence.data) if evidence is not None else 0
            item = _Item(self._count, event.time, line, state, self._gap, size, evidence)
            self._gap = 0
            self._items.append(item)
            self._bytes += size
            self._begun = self._count if state is not None else self._begun
            self._change.notify_all()
        return self._count

    def _encoded(self, event: AnyEvent) -> bytes:
        try:
            return encoded(event)
        except _NO_JSON as error:
            log.exception("an event is not in the log")
            self._lost = f"a {type(event).__name__} is not in the event log: {error}"
            self.problem = self._lost
            return b""

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._items or self._closed)
                if not self._items:
                    return
                item = self._items.popleft()
            if self._clock.monotonic() < self._retry_at:
                self._miss(item)
            elif item.line or item.state is not None:
                self._write(item)
            self.done = item.number
            with self._change:
                # What is being written counts until it has been written.
                self._bytes -= item.size
            began = item.state is not None
            del item  # a large state would wait with it for the next
            if began:
                return_free_memory()  # the allocator would keep what packing it took

    def _miss(self, item: _Item) -> None:
        self._unwritten += item.lost + 1
        self.missing += 1

    def _write(self, item: _Item) -> None:
        assert self._folder is not None  # without one nothing is put here
        try:
            if self._log is None:
                self._log = EventLog(
                    self._folder,
                    max_bytes=self._max_bytes,
                    clock_offset=self._clock_offset,
                )
            lost = self._unwritten + item.lost
            state = self._packed(item.state) if item.state is not None else b""
            if item.evidence is not None:
                self._log.keep(item.evidence)
            if item.line:
                self._log.append_line(item.line, item.time, state, lost=lost)
            else:
                self._log.begin(item.time, state, lost=lost)
            self._unwritten = 0
            self.problem = self._lost
        except OSError as error:
            self._miss(item)
            self._retry_at = self._clock.monotonic() + RETRY_SECONDS
            self.problem = (
                f"the event log in {self._folder} cannot be written ({error.strerror}): what "
                "happens now is kept in memory only; make room or set log_dir elsewhere"
            )
            log.warning("%s", self.problem)
        except _NO_JSON as error:
            self._miss(item)
            log.exception("an event is not in the log")
            self._lost = f"incidents are not in the event log: {error}"
            self.problem = self._lost
        except Exception as error:  # nobody else writes: the thread must go on
            self._miss(item)
            self._retry_at = self._clock.monotonic() + RETRY_SECONDS
            self.problem = (
                f"the event log failed ({type(error).__name__}: {error}): what happens now is kept "
                "in memory only; the coordinator's log has the traceback"
            )
            log.exception("the event log failed")

    def _packed(self, state: StateCut) -> bytes:
        """As much of the state as the log can take; what is left out is reported."""
        packed = state.packed()
        if state.lost and state.lost != self.reduced:
            log.warning("%s", state.lost)
        self.reduced = state.lost
        return packed

    def close(self) -> None:
        """Write what is waiting, within a second."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join(timeout=1.0)
        if self._log is not None and not self._thread.is_alive():
            self._log.close()

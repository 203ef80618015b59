"""The engine with what it needs around it: a lock, the time, the event log, and its actions' way.

Events come from agents, from the reconciler, from tools and from a timer, on any thread; they are
handled one at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from ray_sentinel.actors.handling import handled
from ray_sentinel.actors.log_writer import LogWriter
from ray_sentinel.clock import Clock
from ray_sentinel.engine.actions import AnyAction, Publish
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, IncidentTold
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus, State

SET_BACK = 1.0
"""Seconds by which an event may be late; with more, the clock was set back."""
CATCHING_UP = 0.9
"""How fast the engine's time goes while a clock that was set back catches up with it: if it stood
still, nothing would be found for so long."""


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
        self._last_at = clock.monotonic()
        self._failure = ""
        self._writer = LogWriter(folder, max_log_bytes, clock, after)

    def feed(self, event: AnyEvent) -> int:
        """Handle one event; its time is made to never go back. Returns its number in the log."""
        with self._lock:
            time = self._in_order(event.time)
            if time != event.time:
                event = msgspec.structs.replace(event, time=time)
            known = self._engine.incidents(everything=True)
            memory = self._engine.remember() if self._writer.begins else None
            actions = self._handled(event)
            number = self._writer.put(event, known, memory)
            for action in actions:
                if isinstance(action, Publish):
                    self._writer.put(IncidentTold(time=time, incident=action.incident), known)
            # Under the lock, so that actions keep the order of their events; it only queues them.
            for action in actions:
                self._act(action)
        return number

    def _in_order(self, time: float) -> float:
        """``time``, or the least that is not before the last event's."""
        now = self._clock.monotonic()
        if time < self._last - SET_BACK:
            self._last += CATCHING_UP * (now - self._last_at)
        self._last, self._last_at = max(self._last, time), now
        return self._last

    def _handled(self, event: AnyEvent) -> list[AnyAction]:
        actions, failure = handled(self._engine, event)
        if failure:
            self._failure = (
                f"{failure}: the coordinator's log has the traceback, the event log the way there"
            )
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
        """What is wrong with the engine or the log, and with servers that have no ranks."""
        with self._lock:
            jobs = {job.job for job in self._engine.view.jobs.values()}
            others = [a for a in self._engine.alerts() if a.job and a.job not in jobs]
        said = (f"{alert.job}: {alert.text}" for alert in others)
        return (*filter(None, (self._failure,)), *self._writer.notes, *said)

    def close(self) -> None:
        """Write what waits."""
        self._writer.close()

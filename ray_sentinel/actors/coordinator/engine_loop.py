"""The engine with what it needs around it: a lock, the time, the event log, and its actions' way.

Events come from agents, from the reconciler, from tools and from a timer, on any thread; they are
handled one at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from ray_sentinel.actors.coordinator.event_log import MOST_STATE
from ray_sentinel.actors.coordinator.handling import handled
from ray_sentinel.actors.coordinator.log_writer import LogWriter
from ray_sentinel.actors.coordinator.shown import shown_incident, shown_job
from ray_sentinel.clock import Clock, SteadyClock
from ray_sentinel.engine.actions import AnyAction, Capture, Publish
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, SnapshotReceived, Tick
from ray_sentinel.engine.state import NO_SNAPSHOT
from ray_sentinel.masking import mask_record
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus, State

log = logging.getLogger(__name__)


class EngineLoop:
    """Owns the engine. ``feed`` may be called from any thread.

    Inside, all times are on ``clock``; what ``incidents`` and ``status`` give, and the incidents of
    actions, are on the wall clock.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        act: Callable[[AnyAction], None],
        folder: Path | None,
        max_log_bytes: int,
    ) -> None:
        """The log goes to ``folder``; without one nothing is kept."""
        self._engine = engine
        self._clock = clock if isinstance(clock, SteadyClock) else SteadyClock(clock)
        self._act = act
        self._lock = threading.Lock()
        self._last = 0.0
        self._failure = self._reduced = ""
        self._writer = LogWriter(folder, max_log_bytes, clock, clock_offset=self._clock.offset)
        self._keeps = folder is not None

    def feed(self, event: AnyEvent) -> int:
        """Handle one event, which happens now, whatever time it was made with; time never goes
        back. Returns its number in the log."""
        now = self._clock.now()
        with self._lock:
            if not isinstance(event, SnapshotReceived | Tick):
                # A snapshot's agent has masked it; what was read here has not been yet.
                event = mask_record(event)
            self._last = max(self._last, now)
            event = msgspec.structs.replace(event, time=self._last)
            state = self._snapshot() if self._writer.begins else b""
            actions = self._handled(event)
            number = self._writer.put(event, state)
            # Under the lock, so that actions keep the order of their events; it only queues them.
            for action in actions:
                self.act(action)
            if self._keeps and any(isinstance(action, Publish) for action in actions):
                # What was told stays as it was told, whatever a later version makes of the events.
                self._writer.put_state(self._last, self._snapshot())
        return number

    def _snapshot(self) -> bytes:
        """As much of the engine's state as the log takes; what is left out is said."""
        reduced, state = "", b""
        for what, pack in self._packings():
            why = f"more than {MOST_STATE >> 20} MiB"
            try:
                state = pack()
            except NO_SNAPSHOT as error:  # a number or a text that came from a rank
                why = str(error)
            else:
                if 0 < len(state) <= MOST_STATE:
                    break
            reduced, state = f"{what} will not outlive a restart of the coordinator: {why}", b""
        if reduced and reduced != self._reduced:
            log.warning("%s", reduced)
        self._reduced = reduced
        return state

    def _packings(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """What is lost without it, and how it is had; the most that can be had first."""
        state = self._engine.state
        series = "the nodes' metrics of the last minutes"
        # Not packed to learn that it is too large: a thousand nodes' take a gigabyte.
        fits = state.cluster.telemetry.size <= MOST_STATE
        yield series, state.packed if fits else bytes
        yield "what was learned of the jobs", partial(state.packed, series=False)
        yield "what is known of the incidents", state.packed_incidents

    def act(self, action: AnyAction) -> None:
        """Have an action done, which the engine has asked for now or before."""
        self._act(self._shown(action))

    def _shown(self, action: AnyAction) -> AnyAction:
        """The action with an incident whose times people can read."""
        if not isinstance(action, Publish | Capture):
            return action
        incident = shown_incident(action.incident, self._clock.shift)
        return msgspec.structs.replace(action, incident=incident)

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

    def incidents(self) -> tuple[Incident, ...]:
        """All confirmed incidents, the newest last."""
        with self._lock:
            known = self._engine.incidents()
        shift = self._clock.shift
        return tuple(shown_incident(incident, shift) for incident in known)

    def status(self) -> tuple[State, str, tuple[JobStatus, ...]]:
        """State, sentence and jobs."""
        with self._lock:
            state, verdict, jobs = self._engine.status(self._clock.now())
        shift = self._clock.shift
        return state, verdict, tuple(shown_job(job, shift) for job in jobs)

    def learned_phases(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """What is known of every job's phases: job → phase → seconds."""
        with self._lock:
            return self._engine.view.learned()

    def notes(self) -> tuple[str, ...]:
        """What is wrong with the engine or the log, and with servers that have no ranks."""
        with self._lock:
            jobs = {job.job for job in self._engine.view.jobs.values()}
            failures = [
                f"{part} failed ({said}): the coordinator's log has the traceback"
                for part, said in self._engine.failures.told.items()
            ]
            others = [a for a in self._engine.alerts() if a.job and a.job not in jobs]
        said = (f"{alert.job}: {alert.text}" for alert in others)
        failed = filter(None, (self._failure, self._reduced))
        return (*failed, *failures, *self._writer.notes, *said)

    def close(self) -> None:
        """Write what waits."""
        self._writer.close()

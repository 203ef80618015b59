"""What an agent owes the coordinator: exits and events that were not acknowledged yet."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

import msgspec

from ray_sentinel.clock import SteadyClock
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.progress import Exit

MOST_EVENTS = 500
"""Most events that are kept while the coordinator is away; of more, the oldest are dropped."""
MOST_EXITS = 1000
"""Most exits that are kept until they are acknowledged; of more, the oldest are dropped."""


class Outbox:
    """What has to be sent to the coordinator. Any thread may add; only the thread that reports
    takes what is sent."""

    def __init__(self, clock: SteadyClock) -> None:
        """``clock`` is the agent's, on which events are reported."""
        self._clock = clock
        self._lock = threading.Lock()
        self._exits: dict[int, Exit] = {}
        self._events: deque[Event] = deque()
        self._sent: tuple[Event, ...] = ()
        """The events of the last report, until that is acknowledged."""
        self.lost_exits = self.lost_events = 0
        """How many exits and events there was no room for."""

    def add_events(self, events: Iterable[Event]) -> None:
        """Keep events for the next report. Collectors give the wall clock's time, which may have
        been set since we started."""
        if shift := self._clock.shift:
            events = [msgspec.structs.replace(event, time=event.time - shift) for event in events]
        with self._lock:
            self._events.extend(events)
            while len(self._sent) + len(self._events) > MOST_EVENTS:
                self.lost_events += 1
                if self._sent:
                    self._sent = self._sent[1:]
                else:
                    self._events.popleft()

    @property
    def lost(self) -> dict[str, int]:
        """How many ``exits`` and ``events`` there was no room for."""
        return {"exits": self.lost_exits, "events": self.lost_events}

    @property
    def problem(self) -> str:
        """What was lost while the coordinator was away; empty while nothing was."""
        lost = [f"{count} {what}" for what, count in self.lost.items() if count]
        return f"no coordinator for long: the oldest {' and '.join(lost)} were lost" if lost else ""

    def add_exit(self, gone: Exit) -> Exit:
        """Keep an exit until it is acknowledged by its ``order``. Returns it as it is reported."""
        with self._lock:
            known = self._with_oom(gone)
            self._exits[known.order] = known
            while len(self._exits) > MOST_EXITS:
                del self._exits[next(iter(self._exits))]
                self.lost_exits += 1
        return known

    def _with_oom(self, gone: Exit) -> Exit:
        """The exit, with the kernel's message that memory ran out, if that has arrived already."""
        if gone.signal != 9:
            return gone
        pid = str(gone.rank.process.pid)
        killed = any(
            event.kind == "kernel.oom" and event.attributes.get("pid") == pid
            for event in (*self._sent, *self._events)
        )
        return msgspec.structs.replace(gone, oom_killed=True) if killed else gone

    @property
    def owes(self) -> bool:
        """Whether anything has not been acknowledged yet."""
        with self._lock:
            return bool(self._exits or self._events or self._sent)

    def exits(self) -> tuple[Exit, ...]:
        """All exits that were not acknowledged, in their order."""
        with self._lock:
            return tuple(self._exits.values())

    def take_events(self) -> tuple[Event, ...]:
        """The events for a report: those of unacknowledged reports, then the new ones."""
        with self._lock:
            self._sent = (*self._sent, *self._events)
            self._events.clear()
            return self._sent

    def acknowledged(self, exits: Iterable[int]) -> None:
        """The last report arrived; ``exits`` are the orders that need not be sent again."""
        with self._lock:
            for order in exits:
                self._exits.pop(order, None)
            self._sent = ()

"""What an agent reports to the coordinator, and when: its pace, its samples, and what it owes."""

from __future__ import annotations

import math
import random
import threading
from collections import deque
from collections.abc import Iterable

import msgspec

from ray_sentinel.actors.messages import HistoryRequest, Receipt
from ray_sentinel.actors.metrics import history_samples, key_samples
from ray_sentinel.clock import SteadyClock
from ray_sentinel.model.metrics import Event, Family
from ray_sentinel.model.progress import HELD, OVER, Exit, RankSnapshot, RayProcess
from ray_sentinel.model.samples import SampleBatch, SampleSender, StreamName, TableHeld

# When an agent reports: at once when something happens on its node, otherwise as rarely as it
# may.

_REPORTED_AT_ONCE = HELD | OVER
"""States of processes that are reported at once."""
_Shape = tuple[tuple[object, ...], ...]


class ReportPace:
    """Decides which of an agent's looks at its node are reported: each, unless the coordinator asks
    for fewer.

    What a process counts (steps, CPU time, the call that it runs) changes all the time, and is
    reported when a report is due; who is there, and who is held up, is reported at once, and with
    every look while anybody is held up. No event moves the times at which reports are due, and they
    differ between agents: otherwise, after a job's start, all agents would report in the same
    second for ever.

    May be used by two threads: one that looks, and one that reports.
    """

    def __init__(self, least: float, phase: float | None = None) -> None:
        """``least``: seconds between two looks. ``phase``, 0..1: when in each interval a report is
        due; at random if not given."""
        self._least = least
        self._phase = random.random() if phase is None else phase
        self._asked = self._interval = least
        self._turn = -1
        self._failed = False
        self._reported: _Shape = ()

    @property
    def interval(self) -> float:
        """Seconds between two reports while nothing happens, counted from the last report."""
        return self._interval

    def set_interval(self, wanted: float | None) -> None:
        """Set the interval that the coordinator asks for, rounded up to whole looks. It takes
        effect with the next report, which states it. None if a report did not reach the
        coordinator."""
        if wanted is None:
            self._failed = True
        else:
            self._asked = self._least * max(1, math.ceil(wanted / self._least - 1e-6))

    def due(
        self,
        ranks: Iterable[RankSnapshot],
        ray_processes: Iterable[RayProcess],
        now: float,
        *,
        owes: bool,
    ) -> bool:
        """Whether to report what was seen ``now`` (increasing seconds), which then counts as
        reported. ``owes``: there is more to report."""
        shape, held = _shape(ranks, ray_processes)
        turn = math.floor(now / self._interval + self._phase)
        usual = self._interval <= self._least or turn != self._turn
        if not (usual or owes or held or self._failed or shape != self._reported):
            return False
        self._reported, self._turn, self._failed = shape, turn, False
        self._interval = self._asked
        return True


def _shape(
    ranks: Iterable[RankSnapshot], ray_processes: Iterable[RayProcess]
) -> tuple[_Shape, bool]:
    """Who is there and held up by what, and whether anybody is held up."""
    shape: list[tuple[object, ...]] = []
    held = False
    for one in ranks:
        state = one.process
        stopped = state.state if state.state in _REPORTED_AT_ONCE else ""
        how = (stopped, state.frozen, bool(state.tracer_pid), state.interpreter == "gil-held")
        held = held or any(how)
        said = one.progress is not None and one.progress.last_words is not None
        shape.append((one.rank.id, one.rank.process, how, said))
    for process in ray_processes:
        stopped = process.state if process.state in _REPORTED_AT_ONCE else ""
        held = held or bool(stopped)
        shape.append((process.process, stopped))
    return tuple(shape), held


# Which of a node's series are sent to the coordinator, and when. Pure.

SAMPLE_SECONDS = 4.5
"""Seconds between two samples of the key series, which change with the collectors' cycles."""


class NodeSampling:
    """Samples each stream when it is due. Used by one thread."""

    def __init__(self, incarnation: str) -> None:
        """``incarnation`` differs with every start of the agent."""
        self._rules = SampleSender("rules", incarnation)
        self._others = SampleSender("history", incarnation)
        self._history = HistoryRequest()
        self._held: dict[StreamName, TableHeld] = {}
        self._due = self._history_due = float("-inf")

    def due(
        self, collected: Iterable[Family], measured: Iterable[Family], now: float
    ) -> tuple[SampleBatch, ...]:
        """What to send now (increasing seconds): the key series of ``collected``, and for the
        history the other ones of ``measured``. A series needed for both is sent once."""
        if now < self._due:
            return ()
        self._due = now + SAMPLE_SECONDS
        key = key_samples(collected)
        batches = [(self._rules, key)]
        # As often as requested, but together with the key series, so that their times are the same.
        if self._history.series and now >= self._history_due - SAMPLE_SECONDS / 2:
            self._history_due = now + self._history.seconds
            wanted = history_samples(measured, self._history.series)
            others = {series: value for series, value in wanted.items() if series not in key}
            batches.append((self._others, others))
        return tuple(
            sender.batch(values, self._held.get(sender.stream), now)
            for sender, values in batches
            if values
        )

    def accept(self, receipt: Receipt) -> None:
        """Set what the coordinator has, and what it wants."""
        self._history, self._held = receipt.history, receipt.tables


# What an agent owes the coordinator: exits and events that were not acknowledged yet.

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
        self.lost = {"exits": 0, "events": 0}
        """How many ``exits`` and ``events`` there was no room for."""

    def add_events(self, events: Iterable[Event]) -> None:
        """Keep events for the next report. Collectors give the wall clock's time, which may have
        been set since we started."""
        if shift := self._clock.shift:
            events = [msgspec.structs.replace(event, time=event.time - shift) for event in events]
        with self._lock:
            self._events.extend(events)
            while len(self._sent) + len(self._events) > MOST_EVENTS:
                self.lost["events"] += 1
                if self._sent:
                    self._sent = self._sent[1:]
                else:
                    self._events.popleft()

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
                self.lost["exits"] += 1
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

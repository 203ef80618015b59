"""When a collector's process is started, asked and killed. Pure: time comes in with each call.

One process, at most one question in flight::

    waiting --spawned--> starting --hello--> ready --asked--> running --answered--> ready
       ^                    |                  |                 |
       |                    +----- late -------+---- late -------+--> ending --(gone)--> waiting
       |                                                                |
       +------------------------------ gone ------------------------- stuck  (SIGKILL did nothing)

A missed deadline, or a process that dies, is followed by a back-off that doubles each time up to
``MAX_BACKOFF``; the first answer in time ends it. A collector with a process that cannot be killed
gets no other one until that has gone, so their number is bounded. One that asked to be left out is
never started again.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal

import msgspec

from ray_sentinel.backoff import Backoff
from ray_sentinel.collect.protocol import Outcome

MAX_BACKOFF = 300.0
DEATH_BACKOFF = 1.0
"""Seconds before a process that died is started again for the first time."""
KILL_GRACE = 2.0
"""Seconds after SIGKILL before a process counts as unkillable."""
ANSWER_GRACE = 0.5
"""Seconds from the deadline to SIGKILL: the process's own timer comes first, and says where it
stood."""
CHECK_SECONDS = 0.05
"""Seconds between two checks whether a killed process has ended."""
STUCK_CHECK_SECONDS = 2.0
"""Seconds between two looks whether a process that could not be killed is gone."""


class ScheduleStep(Enum):
    """What must be done now."""

    SPAWN = "spawn"
    ASK = "ask"
    KILL = "kill"
    """Kill the process and all that it started."""
    CHECK = "check"
    """Check whether the killed process has ended, and report with ``ended`` or ``still_alive``."""


Phase = Literal["waiting", "starting", "ready", "running", "ending", "stuck", "skipped"]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds, from the collector or the configuration."""

    interval: float = 10.0
    deadline: float = 5.0
    start_deadline: float = 30.0
    """Seconds for the interpreter to start and the collector to be imported and made."""


class Schedule:
    """One collector's process. ``step`` says what to do; the other methods report the result.

    All ``now`` are seconds of one clock that never goes back. ``unkillable`` processes may be left
    from an earlier life of the runner.
    """

    def __init__(self, now: float, timing: Timing | None = None, unkillable: int = 0) -> None:
        self.timing = timing or Timing()
        self.phase: Phase = "stuck" if unkillable else "waiting"
        self.timeouts = 0
        self.restarts = 0
        self.unkillable = unkillable
        self.failures = 0
        """Missed deadlines and deaths in a row."""
        self.message = ""
        """Why it is quarantined, stuck or skipped."""
        self._at = now
        """When the phase wants something."""
        self._due = now
        """When the collector must be asked."""
        self._asked = now
        self._killed = now
        self._for_good = False
        self._spawned = False

    @property
    def at(self) -> float | None:
        """When ``step`` next returns something, if nothing else happens; None for never."""
        return None if self.phase == "skipped" else self._at

    @property
    def state(self) -> Literal["starting", "running", "skipped", "quarantined", "stuck"]:
        """As in ``CollectorStatus``: on probation after a failure it is still quarantined."""
        if self.phase in ("skipped", "stuck"):
            return "skipped" if self.phase == "skipped" else "stuck"
        if self.failures:
            return "quarantined"
        return "starting" if self.phase in ("waiting", "starting") else "running"

    def step(self, now: float) -> ScheduleStep | None:
        """What to do at ``now``; None for nothing yet."""
        if self.phase == "skipped" or now < self._at:
            return None
        if self.phase == "waiting":
            return ScheduleStep.SPAWN
        if self.phase == "ready":
            return ScheduleStep.ASK
        if self.phase in ("ending", "stuck"):
            return ScheduleStep.CHECK
        self._late(now)
        return ScheduleStep.KILL

    def spawned(self, now: float) -> None:
        """The process was started."""
        self.restarts += self._spawned
        self._spawned = True
        self.phase, self._at = "starting", now + self.timing.start_deadline

    def not_spawned(self, now: float, why: str) -> None:
        """The process could not be started."""
        self._fail(now, why)
        self.phase, self._at = "waiting", self._due

    def hello(self, now: float, timing: Timing) -> None:
        """The collector has been created, and has sent its interval and deadline."""
        self.timing = timing
        self._due = now
        self.phase, self._at = "ready", now

    def asked(self, now: float) -> None:
        """The collector was asked to collect."""
        self._asked = now
        self.phase, self._at = "running", now + self.timing.deadline + ANSWER_GRACE

    def answered(
        self, now: float, outcome: Outcome, message: str = "", pause: float = 0.0
    ) -> ScheduleStep | None:
        """It answered, and asks not to be called for ``pause`` seconds. Returns KILL if its process
        has no further use. One that asked to be left out ends by itself, and is killed only if it
        does not."""
        if outcome == "skip":
            self._for_good, self.message = True, message
            self.failures = 0
            self._end(now)
            return ScheduleStep.KILL
        if self.phase == "starting":
            self._fail(now, message)
            self._end(now)
            return ScheduleStep.KILL
        self._due = max(_next(self._due, self.timing.interval, now), now + pause)
        if outcome == "timeout":
            # Its own child missed the deadline: the process is well, the collector is not.
            self.timeouts += 1
            self._fail(now, message)
        else:
            self.failures, self.message = 0, ""
        self.phase, self._at = "ready", self._due
        return None

    def closed(self, now: float, why: str = "", where: str = "") -> ScheduleStep | None:
        """Its side of the pipe has ended, or sent something unreadable (``why``).

        A process that ends after its deadline was ended by its own timer; ``where`` says in what.
        """
        if self.phase in ("waiting", "ending", "stuck", "skipped"):
            return None
        if self.phase == "running" and now >= self._asked + self.timing.deadline and not why:
            self._late(now)
            self.message += where
            return ScheduleStep.KILL
        self._fail(now, why, first=DEATH_BACKOFF)
        self._end(now)
        return ScheduleStep.KILL

    def ended(self, now: float, epitaph: str = "") -> None:
        """The killed process has ended; ``epitaph`` says how, if nothing else is known."""
        self.unkillable = 0
        if self._for_good:
            self.phase = "skipped"
            return
        if self.failures and not self.message:
            self.message = epitaph
        self.phase, self._at = "waiting", max(now, self._due)

    def still_alive(self, now: float, count: int) -> None:
        """``count`` of its processes still exist although they were killed."""
        if self.phase == "ending" and now < self._killed + KILL_GRACE:
            self._at = now + CHECK_SECONDS
            return
        self.phase, self._at = "stuck", now + STUCK_CHECK_SECONDS
        self.unkillable = count

    def retire(self, now: float) -> None:
        """It is no longer wanted: end its process, and start no other."""
        self._for_good = True
        self._end(now)

    def _late(self, now: float) -> None:
        timing = self.timing
        if self.phase == "running":
            what = f"missed its deadline of {timing.deadline:g} s"
        else:
            what = f"did not start within {timing.start_deadline:g} s"
        self.timeouts += 1
        self._fail(now, what)
        self._end(now)

    def _end(self, now: float) -> None:
        self._killed = now
        self.phase, self._at = "ending", now + CHECK_SECONDS / 5

    def _fail(self, now: float, why: str, first: float | None = None) -> None:
        """Count a failure, after which it must wait: ``first`` seconds after the first in a row, by
        default its interval."""
        self.failures += 1
        self.message = why
        interval = self.timing.interval
        backoff = Backoff(first=first or interval, most=max(MAX_BACKOFF, interval))
        self._due = now + backoff.delay(self.failures)


def _next(due: float, interval: float, now: float) -> float:
    """The next moment on the grid of ``interval`` after ``now``: runs that were missed are not
    made up for."""
    missed = max(0.0, now - due) // interval
    return due + (missed + 1) * interval

"""Clocks as injected objects, so that tests can control time."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Protocol

import msgspec

LATEST = 1e11
"""Latest time of a sample that is valid, in Unix seconds (the year 5138)."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One moment on two clocks."""

    wall: float
    """Unix seconds, for comparison with the times of files and of other hosts."""
    steady: float
    """Seconds of a clock that is never set, by which durations are measured."""


class Clock(Protocol):
    """The source of time for loops."""

    def now(self) -> float:
        """Unix seconds."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds``; a fake clock only advances."""


def moment(clock: Clock) -> Moment:
    """The current moment on both clocks."""
    return Moment(wall=clock.now(), steady=clock.monotonic())


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Unix seconds of the wall clock."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds of ``CLOCK_MONOTONIC``, which stands still while the machine is suspended."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds``."""
        time.sleep(seconds)


class BootClock(SystemClock):
    """The machine's clock, whose monotonic seconds go on while the machine is suspended, because
    time has passed for other machines too."""

    def monotonic(self) -> float:
        """Seconds of ``CLOCK_BOOTTIME``."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class KeptMoment:
    """A past moment that keeps its age however the wall clock is set.

    It must be read for the first time soon after the moment, before the clock is set.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at, self._steady = float("nan"), 0.0

    def today(self, at: float) -> float:
        """``at`` on the wall clock as it is set now."""
        now, steady = self._clock.now(), self._clock.monotonic()
        if at != self._at:
            self._at, self._steady = at, steady - (now - at)
        return now - (steady - self._steady)


_MOST_EPOCHS = 64
"""Most settings of a wall clock that are remembered; of one that is set over and over, the oldest
are forgotten."""
SHIFT_STEP = 0.5
"""Seconds by which the wall clock must move against a steady one before the move is followed: what
is shown to people stays the same, to the last bit, while the clock is only slewed."""


class SteadyClock:
    """Unix seconds that never jump: the wall clock as it stood at the start, continued by the
    monotonic one. Orders and durations derived from ``now`` are right even if the wall clock is
    set, forward or back; ``shown`` gives the time for people."""

    def __init__(self, clock: Clock | None = None, *, offset: float | None = None) -> None:
        """``offset`` is its Unix minus monotonic seconds, if it continues an earlier clock."""
        self._clock = clock or SystemClock()
        self.offset = self._clock.now() - self._clock.monotonic() if offset is None else offset
        self._shift = 0.0

    def now(self) -> float:
        """Unix seconds that never jump."""
        return self._clock.monotonic() + self.offset

    def monotonic(self) -> float:
        """Monotonic seconds of the underlying clock."""
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds``."""
        self._clock.sleep(seconds)

    @property
    def shift(self) -> float:
        """Seconds by which the wall clock is ahead of ``now`` because it was set since the
        start."""
        shift = self._clock.now() - self.now()
        if abs(shift - self._shift) > SHIFT_STEP:
            self._shift = shift
        return self._shift

    def shown(self, at: float) -> float:
        """A moment of ``now`` on the wall clock as it is set now."""
        return at + self.shift


class _Epoch(msgspec.Struct):
    """A time in which the wall clock was so far from the monotonic one."""

    offset: float
    since: float
    until: float = float("inf")


class WallHistory:
    """Converts wall clock times, such as a file's, to the monotonic clock, even if the wall clock
    was set between then and now.

    It knows of changes since it was created, provided that ``poll`` is called often; before that,
    the clock is assumed to have run as it did then. Any thread may call.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or BootClock()
        self._lock = threading.Lock()
        self._looked = self.now()
        first = _Epoch(self._clock.now() - self._looked, since=float("-inf"))
        self._epochs = deque([first], maxlen=_MOST_EPOCHS)

    def now(self) -> float:
        """The monotonic seconds that ``earliest`` returns."""
        return self._clock.monotonic()

    def poll(self) -> None:
        """Check whether the wall clock was set."""
        with self._lock:
            now = self.now()
            offset = self._clock.now() - now
            last = self._epochs[-1]
            if abs(offset - last.offset) > SHIFT_STEP:
                # Some time between the two looks: both offsets held for all of it.
                last.until = now
                self._epochs.append(_Epoch(offset, since=self._looked))
            self._looked = now

    def earliest(self, wall: float, ahead: float = 0.0) -> float | None:
        """The first moment at which the wall clock can have shown ``wall``; None if it never did.

        A clock that was set back has shown the same time twice. ``ahead`` are seconds by which the
        writer's clock may be ahead of ours.
        """
        self.poll()
        with self._lock:
            until = self._looked + ahead
            moments = [
                at
                for epoch in self._epochs
                if epoch.since <= (at := wall - epoch.offset) <= min(epoch.until, until)
            ]
        return min(moments, default=None)


class FakeClock:
    """A clock for tests: starts at ``start`` and advances only when told to."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> float:
        """The Unix seconds that were set."""
        return self._now

    def monotonic(self) -> float:
        """Seconds by which the clock was advanced."""
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        """Advance by ``seconds``, at once."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self._now += seconds
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock forward by ``seconds``, while no time passes."""
        self._now += seconds

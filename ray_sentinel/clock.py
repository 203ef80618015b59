"""Time as something that is handed in, so that tests can turn it."""

from __future__ import annotations

import time
from typing import Protocol

import msgspec


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One time by two clocks."""

    wall: float
    """Unix seconds, to be compared with the times of files and of other hosts."""
    steady: float
    """Seconds that only pass: how long something takes is told by them, for the other clock may be
    set while it does."""


class Clock(Protocol):
    """Where loops take the time from."""

    def now(self) -> float:
        """Unix seconds."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""

    def sleep(self, seconds: float) -> None:
        """Wait; a fake clock only moves its hands."""


def moment(clock: Clock) -> Moment:
    """Now."""
    return Moment(wall=clock.now(), steady=clock.monotonic())


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class BootClock(SystemClock):
    """The same, but its monotonic seconds go on while the machine is suspended: what another
    machine waited meanwhile has passed here too."""

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class KeptMoment:
    """A moment of the wall clock that stays as long ago as it is, however that clock is set.

    It must be asked for first soon after the moment, before the clock is set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at, self._steady = float("nan"), 0.0

    def today(self, at: float) -> float:
        """``at`` as the wall clock tells it now."""
        now, steady = self._clock.now(), self._clock.monotonic()
        if at != self._at:
            self._at, self._steady = at, steady - (now - at)
        return now - (steady - self._steady)


SHIFT_STEP = 0.5
"""Seconds by which the wall clock must move against a steady one to be followed: what is shown to
people stays the same, to the last bit, while it is only slewed."""


class SteadyClock:
    """Unix seconds that only pass: the wall clock as it stood at the start, carried on by the
    monotonic one. Whatever order or duration is told from ``now`` survives a wall clock that is
    set, forward or back; ``shown`` gives the time that people are told.
    """

    def __init__(self, clock: Clock | None = None, *, offset: float | None = None) -> None:
        """``offset`` is its Unix minus monotonic seconds, where it goes on from an earlier one."""
        self._clock = clock or SystemClock()
        self.offset = self._clock.now() - self._clock.monotonic() if offset is None else offset
        self._shift = 0.0

    def now(self) -> float:
        return self._clock.monotonic() + self.offset

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    @property
    def shift(self) -> float:
        """Seconds that the wall clock is ahead of ``now``: it was set since the start."""
        shift = self._clock.now() - self.now()
        if abs(shift - self._shift) > SHIFT_STEP:
            self._shift = shift
        return self._shift

    def shown(self, at: float) -> float:
        """A moment of ``now`` as the wall clock tells it today."""
        return at + self.shift


class FakeClock:
    """A clock for tests: starts at ``start`` and moves only when told to."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move the hands forward."""
        self._now += seconds
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock: no time passes."""
        self._now += seconds

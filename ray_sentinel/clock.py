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


class FakeClock:
    """A clock for tests: starts at ``start`` and moves only when told to."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._start = start

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now - self._start

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move the hands forward."""
        self._now += seconds

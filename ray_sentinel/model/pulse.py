"""A job's pulse: how long its steps, or its actors' calls, took over the last hour."""

from __future__ import annotations

from typing import Literal

import msgspec

PulsePoint = tuple[int, int, float, float]
"""Which of the report's places, how many ended in it, and of those the mean and the longest, in
seconds."""


class PulseLane(msgspec.Struct, frozen=True, kw_only=True):
    """One row of points: the steps, or the calls of one method."""

    name: str
    """Of the method; empty for steps."""
    points: tuple[PulsePoint, ...] = ()
    """Oldest first; a place in which nothing ended has none."""


class PulsePhase(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a job was in a phase other than training. Unix seconds."""

    phase: str
    start: float
    end: float | None = None
    """None while it lasts."""


class PulseMark(msgspec.Struct, frozen=True, kw_only=True):
    """An event on the job's hosts. Unix seconds."""

    at: float
    about: Literal["gpu", "network", "host"]
    host: str
    text: str
    count: int = 1
    """So often within one place."""


class JobPulse(msgspec.Struct, frozen=True, kw_only=True):
    """The pulse of one attempt of a job."""

    job: str
    attempt: int
    counts: Literal["steps", "calls"]
    lanes: tuple[PulseLane, ...] = ()
    phases: tuple[PulsePhase, ...] = ()
    marks: tuple[PulseMark, ...] = ()
    """Oldest first."""


class PulseReport(msgspec.Struct, frozen=True, kw_only=True):
    """The pulse of all jobs. Interval ``n`` begins at ``begin + n * width``, in Unix seconds."""

    begin: float
    width: float
    places: int
    jobs: tuple[JobPulse, ...] = ()

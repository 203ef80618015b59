"""A job's pulse: how long its steps, or its actors' calls, took over the last hour."""

from __future__ import annotations

from typing import Literal

import msgspec

PulsePoint = tuple[int, int, float, float]
"""The index of one of the report's places, how many steps or calls ended in it, and their mean and
longest duration in seconds."""


class PulseLane(msgspec.Struct, frozen=True, kw_only=True):
    """One row of points: the steps, or the calls of one method."""

    name: str
    """The method's name; empty for steps."""
    points: tuple[PulsePoint, ...] = ()
    """Points, oldest first; a place in which nothing ended has none."""


class PulsePhase(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a job was in a phase other than training. Unix seconds."""

    phase: str
    start: float
    end: float | None = None
    """When it ended; None while it lasts."""


class PulseMark(msgspec.Struct, frozen=True, kw_only=True):
    """An event on the job's hosts. Unix seconds."""

    at: float
    about: Literal["gpu", "network", "host"]
    host: str
    text: str
    count: int = 1
    """How many there were within one place."""


class JobPulse(msgspec.Struct, frozen=True, kw_only=True):
    """The pulse of one attempt of a job."""

    job: str
    attempt: int
    counts: Literal["steps", "calls"]
    lanes: tuple[PulseLane, ...] = ()
    phases: tuple[PulsePhase, ...] = ()
    marks: tuple[PulseMark, ...] = ()
    """Marks, oldest first."""


class PulseReport(msgspec.Struct, frozen=True, kw_only=True):
    """The pulse of all jobs. Interval ``n`` begins at ``begin + n * width``, in Unix seconds."""

    begin: float
    width: float
    places: int
    jobs: tuple[JobPulse, ...] = ()

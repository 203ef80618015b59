"""What the page draws of the last hour: the lanes of ranks and roles, the pulse of jobs, and the
plots of one rank."""

from __future__ import annotations

from typing import Literal

import msgspec

# What each rank, group of ranks or role did over the last hour, as lanes over time.

LaneStretch = tuple[int, int, int]
"""The index of one of the job's kinds, when the stretch began after the report's begin, and how
long it lasted, both in tenths of a second."""


class DrawnLane(msgspec.Struct, frozen=True, kw_only=True):
    """One row, oldest stretch first."""

    name: str
    """Its name: "rank 3", "ranks 0 to 127", a host, or a role."""
    stretches: tuple[LaneStretch, ...] = ()


class JobLanes(msgspec.Struct, frozen=True, kw_only=True):
    """The lanes of one attempt of a job."""

    job: str
    attempt: int
    of: Literal["ranks", "roles"]
    kinds: tuple[str, ...] = ()
    """Kinds of stretches: phases, "step", "wait", "gap" and "stopped", or methods."""
    lanes: tuple[DrawnLane, ...] = ()


class LanesReport(msgspec.Struct, frozen=True, kw_only=True):
    """The lanes of the jobs that moved most recently, between two Unix times in seconds."""

    begin: float = 0.0
    end: float = 0.0
    jobs: tuple[JobLanes, ...] = ()


# A job's pulse: how long its steps, or its actors' calls, took over the last hour.

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


# The rank that a reader of the page has selected, and what it, its node and its GPU did over the
# last half hour, as the page plots it.

SeriesUnit = Literal["steps", "seconds", "ratio", "watts", "bytes"]

PlottedPoint = tuple[float, float]
"""Seconds since the report's ``begin``, and the value."""


class RankAsked(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of one attempt of a job."""

    job: str
    attempt: int
    rank: int
    place: str = ""
    """"host pid" of its process, which tells it from others of its number; "" for the newest."""


class RankPlot(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity over time."""

    name: str
    """For people: "time per step", "power of GPU 3"."""
    unit: SeriesUnit
    points: tuple[PlottedPoint, ...]
    """Oldest first; a time of which nothing is known has none."""
    whole: float | None = None
    """What the value is part of, where it is: the memory that a GPU has."""


class RankSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The plots of one rank; Unix seconds. Empty if the coordinator has no data."""

    begin: float
    end: float
    plots: tuple[RankPlot, ...] = ()
    gpus: tuple[str, ...] = ()
    """Which GPUs of its node are meant, by index."""
    assumed: bool = False
    """Whether that follows from its place on the node only: nobody said which GPU it was given."""

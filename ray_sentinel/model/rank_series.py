"""The rank that a reader of the page has selected, and what it, its node and its GPU did over the
last half hour, as the page plots it."""

from __future__ import annotations

from typing import Literal

import msgspec

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

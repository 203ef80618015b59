"""What each rank, group of ranks or role did over the last hour, as lanes over time."""

from __future__ import annotations

from typing import Literal

import msgspec

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

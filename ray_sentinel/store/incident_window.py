"""The time around a past incident, from its bundle."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ray_sentinel.clock import LATEST
from ray_sentinel.errors import InputError
from ray_sentinel.private_files import read_private

MOST_BYTES = 64 << 20
"""Most bytes of a bundle's record; a larger one is not read."""
BEFORE, AFTER = 1800.0, 900.0
LEAD = 60.0
"""Seconds before the job's start that are looked at too, for comparison. What other jobs did
earlier in the same cluster has nothing to do with it."""


def window_start(stop: float, job_since: float | None) -> float:
    """The start of the window for a job that stopped at ``stop`` and was first seen at
    ``job_since``."""
    early = stop - BEFORE
    return early if job_since is None else max(early, min(job_since, stop) - LEAD)


def incident_window(folder: Path | None, incident: str) -> tuple[float, float]:
    """From half an hour before the last progress, or the job's start, to a quarter of an hour after
    the end.

    Raises InputError if the job's folder has no such incident.
    """
    if folder is None:
        raise InputError("--incident needs the job's folder, not a URL")
    unread: list[str] = []
    for file in sorted((folder / "incidents").glob("*/incident.json")):
        try:
            record = msgspec.json.decode(read_private(file, MOST_BYTES), type=_Record)
        except (ValueError, RecursionError) as error:
            unread.append(f"; {file} is no incident of ray_sentinel: {error}")
            continue
        if incident not in (record.id, file.parent.name):
            continue
        known = [time for time in record.times if 0 <= time < LATEST]
        if not known:
            raise InputError(f"{file} has no times")
        return window_start(min(known), record.job_since), max(known) + AFTER
    why = "".join(unread[:3])
    raise InputError(f"{folder / 'incidents'} has no incident {incident}{why}")


class _Record(msgspec.Struct, frozen=True):
    """What is read of ``incident.json``; times in Unix seconds."""

    id: str = ""
    last_progress: float | None = None
    suspected_at: float | None = None
    confirmed_at: float | None = None
    resolved_at: float | None = None
    job_since: float | None = None

    @property
    def times(self) -> tuple[float, ...]:
        """Those that are known."""
        told = (self.last_progress, self.suspected_at, self.confirmed_at, self.resolved_at)
        return tuple(time for time in told if time is not None)

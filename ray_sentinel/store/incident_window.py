"""The time around a past incident, from its bundle."""

from __future__ import annotations

import json
from pathlib import Path

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
    for file in sorted((folder / "incidents").glob("*/incident.json")):
        try:
            record = json.loads(read_private(file, MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            continue
        if not isinstance(record, dict):
            continue
        if incident in {record.get("id"), file.parent.name}:
            times = [
                record.get(key)
                for key in ("last_progress", "suspected_at", "confirmed_at", "resolved_at")
            ]
            known = [float(time) for time in times if isinstance(time, int | float)]
            if not known:
                raise InputError(f"{file} has no times")
            since = record.get("job_since")
            begun = float(since) if isinstance(since, int | float) else None
            return window_start(min(known), begun), max(known) + AFTER
    raise InputError(f"{folder / 'incidents'} has no incident {incident}")

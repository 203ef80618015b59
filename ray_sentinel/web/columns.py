"""The status as the page gets it each second: the ranks of a job as columns (``columns.js``).

Of many ranks that is half as large when it is packed: like stands beside like, and rank numbers
are differences, which are nearly always 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ray_sentinel.model.status import JobStatus, RankStatus, Status


def in_columns(status: Status) -> dict[str, Any]:
    """All of it, for ``msgspec.json``."""
    told = {name: getattr(status, name) for name in Status.__struct_fields__}
    return told | {"jobs": [_job(job) for job in status.jobs]}


def _job(job: JobStatus) -> dict[str, Any]:
    told = {name: getattr(job, name) for name in JobStatus.__struct_fields__}
    return told | {"ranks": _columns(job.ranks)}


def _columns(ranks: Sequence[RankStatus]) -> dict[str, list[Any]]:
    columns = {name: [getattr(one, name) for one in ranks] for name in RankStatus.__struct_fields__}
    columns["rank"] = [after - before for before, after in pairwise((0, *columns["rank"]))]
    ages = columns["step_age_seconds"]
    columns["step_age_seconds"] = [None if age is None else round(age, 1) for age in ages]
    return columns

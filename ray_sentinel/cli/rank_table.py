"""The table that joins processes to ranks, in files of ours and of other launchers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from ray_sentinel.errors import InputError

_MAX_BYTES = 256 << 20
_MOST_DIGITS = 10


def rank_table(path: str | os.PathLike[str]) -> dict[tuple[str, int], int]:
    """(host, pid) → world rank, from ``ray-sentinel status --json``, an incident's
    ``incident.json``, or a list of objects with ``host``, ``pid`` and ``rank``.

    Raises InputError if the file cannot be read or has no such table.
    """
    try:
        with open(path, "rb") as file:
            data: Any = json.loads(file.read(_MAX_BYTES))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from None
    table: dict[tuple[str, int], int] = {}
    for row in _rows(data):
        host, pid, rank = row.get("host"), _number(row.get("pid")), _number(row.get("rank"))
        if isinstance(host, str) and pid is not None and rank is not None:
            table[host, pid] = rank
    if not table:
        raise InputError(
            f"{path}: no ranks in it: the output of `ray-sentinel status --json`, or a list of "
            '{"host", "pid", "rank"}, is meant'
        )
    return table


def _number(value: Any) -> int | None:
    """A pid or a rank, also as a text, which keys of JSON are; None for anything else."""
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) <= _MOST_DIGITS else None
    is_one = isinstance(value, int) and not isinstance(value, bool)
    return value if is_one and 0 <= value < 10**_MOST_DIGITS else None


def _rows(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, list):
        yield from (row for row in data if isinstance(row, dict))
    if not isinstance(data, dict):
        return
    processes = data.get("processes")
    if isinstance(processes, dict):
        for rank, process in processes.items():
            if isinstance(process, dict):
                yield {**process, "rank": rank}
    for key in ("jobs", "ranks"):
        for item in data[key] if isinstance(data.get(key), list) else ():
            if isinstance(item, dict):
                yield from _rows(item) if key == "jobs" else (item,)

"""The two tables of a dump: the groups that the rank knows, and how far it came in each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.flight_recorder.entry import number

MAX_RANKS = 1 << 20
"""A number from this one on is not taken for a rank."""


class GroupConfig(msgspec.Struct, frozen=True):
    """A process group as one rank describes it. ``ranks`` is None if the dump does not say."""

    name: str
    desc: str
    ranks: tuple[int, ...] | None


class GroupStatus(msgspec.Struct, frozen=True):
    """Last enqueued and last completed sequence number; None if unknown (written as -1)."""

    enqueued: int | None
    completed: int | None


def read_configs(value: Any) -> dict[str, GroupConfig]:
    """``pg_config`` by name; empty if it is not a table."""
    if not isinstance(value, Mapping):
        return {}
    result = {}
    for key, item in value.items():
        config = item if isinstance(item, Mapping) else {}
        name = str(config.get("name", key))
        result[name] = GroupConfig(name, str(config.get("desc", "")), _ranks(config.get("ranks")))
    return result


def _ranks(value: Any) -> tuple[int, ...] | None:
    """Global ranks, written as the text of a list ("[0, 2]") or as a list; None if there are none.

    In the order of the group: the position in it is the rank within the group.
    """
    if isinstance(value, str):
        return _ranks_of_text(value)
    if isinstance(value, list | tuple):
        ranks = [rank for item in value if (rank := number(item)) is not None]
        return _plausible(ranks)
    return None


@lru_cache(maxsize=1 << 14)
def _ranks_of_text(text: str) -> tuple[int, ...] | None:
    # Every member writes the same text: a thousand ranks then share one tuple.
    return _plausible([int(digits) for digits in re.findall(r"\d{1,9}", text)])


def _plausible(ranks: list[int]) -> tuple[int, ...] | None:
    """None for what can be no list of ranks: no job has a million."""
    if not all(0 <= rank < MAX_RANKS for rank in ranks):
        return None
    return tuple(dict.fromkeys(ranks)) or None


def read_status(value: Any) -> dict[int, GroupStatus]:
    """``pg_status`` by the rank's own number of the group; empty if it is not a table."""
    if not isinstance(value, Mapping):
        return {}
    result = {}
    for key, item in value.items():
        pg = number(key)
        if pg is not None and isinstance(item, Mapping):
            result[pg] = GroupStatus(
                _counter(item.get("last_enqueued_collective")),
                _counter(item.get("last_completed_collective")),
            )
    return result


def _counter(value: Any) -> int | None:
    result = number(value)
    return result if result is not None and result >= 0 else None

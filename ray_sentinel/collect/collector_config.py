"""A collector's table of the configuration: our keys, and its own settings beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ray_sentinel.collect.protocol import COMMON_KEYS
from ray_sentinel.config import convert

Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class CollectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``[collectors.NAME]``: ``enabled``, ``interval`` and ``deadline`` are for every collector."""

    enabled: bool = True
    interval: Seconds | None = None
    deadline: Seconds | None = None
    options: dict[str, Any] = {}
    """The collector's own settings, checked in its process by its ``Options``."""


def wishes_for(name: str, tables: Mapping[str, Mapping[str, Any]]) -> CollectorConfig:
    """The wishes for collector ``name``. Raises ConfigError for a value of the wrong kind."""
    table = tables.get(name, {})
    ours = {key: value for key, value in table.items() if key in COMMON_KEYS}
    own = {key: value for key, value in table.items() if key not in COMMON_KEYS}
    wishes = convert(ours, CollectorConfig, where=f"[collectors.{name}]", strict=False)
    return msgspec.structs.replace(wishes, options=own)

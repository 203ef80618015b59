"""What all collectors of one runner share."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.api import Seconds
from ray_sentinel.clock import Clock
from ray_sentinel.collect.child_registry import ChildRegistry
from ray_sentinel.collect.protocol import COMMON_KEYS, CollectorSource, OutputLimits, Roots, Setup
from ray_sentinel.config import convert
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.ray_cluster import RayCluster


class CollectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """``[collectors.NAME]``: ``enabled``, ``interval`` and ``deadline`` are for every collector."""

    enabled: bool = True
    interval: Seconds | None = None
    deadline: Seconds | None = None
    options: dict[str, Any] = {}
    """The collector's own settings, checked in its process by its ``Options``."""


def collector_config(name: str, tables: Mapping[str, Mapping[str, Any]]) -> CollectorConfig:
    """The settings of collector ``name``. Raises ConfigError for a value of the wrong kind."""
    table = tables.get(name, {})
    ours = {key: value for key, value in table.items() if key in COMMON_KEYS}
    own = {key: value for key, value in table.items() if key not in COMMON_KEYS}
    settings = convert(ours, CollectorConfig, where=f"[collectors.{name}]", strict=False)
    return msgspec.structs.replace(settings, options=own)


class RunnerContext(msgspec.Struct, kw_only=True):
    """Host, clock, roots and sinks of all collectors of one runner."""

    host: str
    clock: Clock
    selector: selectors.BaseSelector
    children: ChildRegistry
    environ: Mapping[str, str]
    write_log: Callable[[str, str], None]
    """A function that takes a collector's name and a line for its log."""
    on_events: Callable[[tuple[Event, ...]], None]
    roots: Roots = Roots()
    state_dir: Path | None = None
    log_dir: Path | None = None
    limits: OutputLimits = OutputLimits()
    start_deadline: float = 30.0
    live: bool = True
    ranks: tuple[Rank, ...] = ()
    handed_on: float | None = None
    cluster: Callable[[], RayCluster | None] = lambda: None
    """A function that returns what Ray's control store said; called when a collector that wants it
    is asked."""

    def setup(self, source: CollectorSource, settings: CollectorConfig) -> Setup:
        """The first message to a collector's process."""
        return Setup(
            source=source,
            host=self.host,
            roots=self.roots,
            options=settings.options,
            interval=settings.interval,
            deadline=settings.deadline,
            state_dir=self.state_dir / source.name if self.state_dir else None,
            log_dir=self.log_dir,
            live=self.live,
            limits=self.limits,
        )

"""What all collectors of one runner share."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ray_sentinel.clock import Clock
from ray_sentinel.collect.child_registry import ChildRegistry
from ray_sentinel.collect.collector_config import CollectorConfig
from ray_sentinel.collect.protocol import CollectorSource, OutputLimits, Setup
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.ray_cluster import RayCluster


class RunnerContext(msgspec.Struct, kw_only=True):
    """Where they run, what they may read, and whom they tell."""

    host: str
    clock: Clock
    selector: selectors.BaseSelector
    ledger: ChildRegistry
    environ: Mapping[str, str]
    write_log: Callable[[str, str], None]
    """Takes a collector's name and a line."""
    on_events: Callable[[tuple[Event, ...]], None]
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    state_dir: Path | None = None
    log_dir: Path | None = None
    limits: OutputLimits = OutputLimits()
    start_deadline: float = 30.0
    live: bool = True
    ranks: tuple[Rank, ...] = ()
    handed_on: float | None = None
    cluster: Callable[[], RayCluster | None] = lambda: None
    """What Ray's control store said; called when a collector that wants it is asked."""

    def setup(self, source: CollectorSource, wishes: CollectorConfig) -> Setup:
        """What a collector's process is told when it starts."""
        return Setup(
            source=source,
            host=self.host,
            proc=self.proc,
            sys=self.sys,
            dev=self.dev,
            options=wishes.options,
            interval=wishes.interval,
            deadline=wishes.deadline,
            state_dir=self.state_dir / source.name if self.state_dir else None,
            log_dir=self.log_dir,
            live=self.live,
            limits=self.limits,
        )

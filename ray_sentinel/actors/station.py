"""What an agent does on its node, without Ray: watches ranks, collects, serves, captures."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ray_sentinel.actors.exporting import Exporting
from ray_sentinel.actors.loops import every
from ray_sentinel.actors.messages import Receipt, Report
from ray_sentinel.actors.metrics import build_family, key_gauges, train_families
from ray_sentinel.actors.names import PROTOCOL
from ray_sentinel.actors.storage import Storage
from ray_sentinel.collect.runner import Runner, Settings
from ray_sentinel.config import Config, safe_name
from ray_sentinel.model.identity import Node
from ray_sentinel.model.metrics import Event, Family
from ray_sentinel.model.progress import Exit, RankSnapshot, Snapshot

log = logging.getLogger(__name__)

MOST_EVENTS = 500
"""Events kept for the coordinator while it is away."""
ENDED_SECONDS = 120.0
"""A rank that has ended is served as not alive for so long."""


class Station:
    """The parts of one node's agent and the loops that move them."""

    def __init__(
        self,
        node: Node,
        config: Config,
        storage: Storage,
        send: Callable[[Report], Receipt | None],
    ) -> None:
        self.node = node
        self.config = config
        self._send = send
        self._incarnation = uuid.uuid4().hex
        self._sequence = 0
        self._exits: dict[int, Exit] = {}
        self._ended: deque[Exit] = deque(maxlen=1000)
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._events_lock = threading.Lock()
        self._collected: tuple[Family, ...] = ()
        self._from_coordinator: tuple[Family, ...] = ()
        self._closing = threading.Event()
        self.exporting = Exporting(config, node.host, node.address)
        self._notes = tuple(self.exporting.notes)
        self.runner = Runner(
            self._settings(storage),
            config,
            on_families=self._take_families,
            on_events=self._take_events,
        )

    def _settings(self, storage: Storage) -> Settings:
        named = self.config.agent.plugin_dir
        shared = Path(named).expanduser() if named else storage.folder("plugins")
        logs = storage.folder("logs")
        return Settings(
            host=self.node.host,
            run_dir=run_folder(self.node),
            log_dir=logs / safe_name(self.node.host) if logs else None,
            plugin_dirs=(shared,) if shared else (),
        )

    def start(self) -> None:
        """Begin to collect and to report."""
        self.runner.start()
        interval = self.config.agent.snapshot_interval
        every(interval, self._cycle, name="ray-sentinel-report", stop=self._closing)

    def close(self) -> list[str]:
        """End everything; returns what could not be ended."""
        self._closing.set()
        self.runner.stop()
        self.exporting.close()
        return [
            f"{status.unkillable} processes of collector {status.name} on {self.node.host}, which "
            "hang in the kernel"
            for status in self.runner.statuses()
            if status.unkillable
        ]

    def _take_families(self, families: tuple[Family, ...]) -> None:
        self._collected = families

    def _take_events(self, events: tuple[Event, ...]) -> None:
        with self._events_lock:
            self._events.extend(events)

    def _cycle(self) -> None:
        now = time.time()
        ranks: tuple[RankSnapshot, ...] = ()
        self._publish(ranks, now)
        self._report(ranks, now)

    def _publish(self, ranks: tuple[RankSnapshot, ...], now: float) -> None:
        recent = [gone for gone in self._ended if now - gone.at < ENDED_SECONDS]
        self.exporting.publish(
            (
                *self._collected,
                *train_families(ranks, recent, now),
                build_family(PROTOCOL),
                *self._from_coordinator,
            )
        )

    def _report(self, ranks: tuple[RankSnapshot, ...], now: float) -> None:
        self._sequence += 1
        with self._events_lock:
            events = tuple(self._events)
        snapshot = Snapshot(
            node=self.node,
            time=now,
            sequence=self._sequence,
            ranks=ranks,
            exits=tuple(self._exits.values()),
            collectors=self.runner.statuses(),
            gauges=key_gauges(self._collected),
            events=events,
            metrics_url=self.exporting.url,
        )
        receipt = self._send(
            Report(
                snapshot=snapshot,
                incarnation=self._incarnation,
                pid=os.getpid(),
                notes=self._notes,
            )
        )
        if receipt is None:
            self._from_coordinator = ()
            return
        for order in receipt.exits:
            self._exits.pop(order, None)
        with self._events_lock:
            for _ in range(min(len(events), len(self._events))):
                self._events.popleft()
        self._from_coordinator = receipt.families
        self.exporting.set_targets(receipt.targets)


def run_folder(node: Node) -> Path:
    """A folder on a local disk, the same for every life of this node's agent."""
    root = Path(tempfile.gettempdir()) / f"ray_sentinel-{os.getuid()}" / "nodes"
    folder = root / node.id[:16]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder

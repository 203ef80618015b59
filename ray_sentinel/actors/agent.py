"""The agent: one detached actor per node. Thin: what it does is done by its parts."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import uuid
from pathlib import Path

import msgspec

from ray_sentinel.actors.environment import forget_identity
from ray_sentinel.actors.link import CoordinatorLink
from ray_sentinel.actors.logs import write_logs
from ray_sentinel.actors.loops import every
from ray_sentinel.actors.messages import Report
from ray_sentinel.actors.place import this_node
from ray_sentinel.actors.storage import Storage
from ray_sentinel.config import Config, safe_name
from ray_sentinel.model.progress import Exit, Snapshot

log = logging.getLogger(__name__)


class Agent:
    """Made by the coordinator's reconciler, pinned by the node's placement group."""

    def __init__(self, config: bytes) -> None:
        forget_identity()
        self._config = msgspec.json.decode(config, type=Config)
        self._node = this_node()
        self._storage = Storage(self._config)
        write_logs(self._logs(), "agent")
        self._incarnation = uuid.uuid4().hex
        self._link = CoordinatorLink()
        self._sequence = 0
        self._exits: dict[int, Exit] = {}
        self._closing = threading.Event()
        every(
            self._config.agent.snapshot_interval,
            self._report,
            name="ray-sentinel-report",
            stop=self._closing,
        )
        log.info("agent started on %s (%s), pid %d", self._node.host, self._node.id, os.getpid())

    def _logs(self) -> Path | None:
        folder = self._storage.folder("logs")
        return folder / safe_name(self._node.host) if folder else None

    def _report(self) -> None:
        receipt = self._link.send(
            Report(snapshot=self._snapshot(), incarnation=self._incarnation, pid=os.getpid())
        )
        if receipt is not None:
            for order in receipt.exits:
                self._exits.pop(order, None)

    def _snapshot(self) -> Snapshot:
        self._sequence += 1
        return Snapshot(
            node=self._node,
            time=time.time(),
            sequence=self._sequence,
            exits=tuple(self._exits.values()),
        )

    async def ping(self) -> int:
        """The process id: proof of life."""
        return os.getpid()

    async def close(self) -> list[str]:
        """End what was started here; returns what could not be ended."""
        self._closing.set()
        return await asyncio.to_thread(list)

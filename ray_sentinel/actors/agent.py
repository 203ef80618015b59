"""The agent: one detached actor per node. Thin: what it does is done by its ``Station``."""

from __future__ import annotations

import asyncio
import logging
import os

import msgspec

from ray_sentinel.actors.environment import forget_identity
from ray_sentinel.actors.link import CoordinatorLink
from ray_sentinel.actors.logs import write_logs
from ray_sentinel.actors.place import this_node
from ray_sentinel.actors.station import Station
from ray_sentinel.actors.storage import Storage
from ray_sentinel.config import Config, safe_name

log = logging.getLogger(__name__)


class Agent:
    """Made by the coordinator's reconciler, pinned by the node's placement group.

    Arguments and answers are MessagePack of the records in ``messages``.
    """

    def __init__(self, config: bytes) -> None:
        forget_identity()
        settings = msgspec.json.decode(config, type=Config)
        node = this_node()
        storage = Storage(settings)
        logs = storage.folder("logs")
        write_logs(logs / safe_name(node.host) if logs else None, "agent")
        self._station = Station(node, settings, storage, CoordinatorLink().send)
        self._station.start()
        log.info("agent started on %s (%s), pid %d", node.host, node.id, os.getpid())

    async def ping(self) -> int:
        """The process id: proof of life."""
        return os.getpid()

    async def close(self) -> list[str]:
        """End what was started here; returns what could not be ended."""
        return await asyncio.to_thread(self._station.close)

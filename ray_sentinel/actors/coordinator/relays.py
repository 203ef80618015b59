"""Which nodes have a relay, and which relay each agent reports to."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from ray_sentinel.actors.hosts import RayNode

log = logging.getLogger(__name__)

FEWER = 0.8
"""Relays stay until there are fewer nodes than this part of those that made them needed."""


class Relays:
    """``step`` is called by one thread, ``of`` by any."""

    def __init__(
        self,
        above: int,
        agents: int,
        found: Callable[[], Collection[str]],
        start: Callable[[RayNode], Callable[[], bool | None]],
        drop: Callable[[str], None],
    ) -> None:
        """Of more than ``above`` nodes, ``agents`` share a relay, 0 = never. ``found`` says which
        nodes have one of a coordinator before this one. ``start`` has a node's relay made, or finds
        it; what it returns says whether that answers, None while that is open. ``drop`` ends the
        relay of a node."""
        self._above, self._agents = above, agents
        self._found: Callable[[], Collection[str]] | None = found
        self._start, self._drop = start, drop
        self._starting: dict[str, Callable[[], bool | None]] = {}
        self._ready: tuple[str, ...] = ()
        self._of: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, node_id: str) -> str:
        """The node whose relay takes this one's reports; empty where the coordinator does."""
        ready = self._ready
        if not ready:
            return ""
        with self._lock:
            if (known := self._of.get(node_id)) is None:
                # Another relay moves only those that get it or lose it (rendezvous hashing).
                known = max(ready, key=lambda relay: _mixed(relay, node_id))
                self._of[node_id] = known
        return known

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose relays are in use."""
        return self._ready

    def step(self, nodes: Mapping[str, RayNode], free: Collection[str]) -> None:
        """Make as many as the living ``nodes`` want, on those that are ``free`` for one: watched,
        and not about to go."""
        if self._found is not None and nodes:
            for node_id in self._found():
                if node_id in nodes:
                    self._starting[node_id] = self._start(nodes[node_id])
            self._found = None
        has = {*self._ready, *self._starting}
        least = self._above * (FEWER if has else 1.0)
        wanted = math.ceil(len(nodes) / self._agents) if self._agents else 0
        if len(nodes) <= least:
            wanted = 0
        stays = sorted(has & set(free))[:wanted]
        for node_id in has - set(stays):
            self._end(node_id)
        for node_id in self._candidates(nodes, free, stays)[: wanted - len(stays)]:
            self._starting[node_id] = self._start(nodes[node_id])
        self._note_ready()

    @staticmethod
    def _candidates(
        nodes: Mapping[str, RayNode], free: Iterable[str], taken: Collection[str]
    ) -> list[str]:
        # The head has the coordinator.
        found = {key for key in free if key in nodes and not nodes[key].is_head} - set(taken)
        return sorted(found, key=_mixed)

    def _note_ready(self) -> None:
        ready = set(self._ready)
        for node_id, answers in list(self._starting.items()):
            if (answer := answers()) is None:
                continue
            del self._starting[node_id]
            if answer:
                ready.add(node_id)
                log.info("node %s has a relay", node_id[:8])
            else:
                # The next step starts one here again, or elsewhere.
                self._drop(node_id)
        self._use(ready)

    def _end(self, node_id: str) -> None:
        self._starting.pop(node_id, None)
        self._use(set(self._ready) - {node_id})
        self._drop(node_id)
        log.info("node %s has no relay any more", node_id[:8])

    def _use(self, ready: set[str]) -> None:
        if ready != set(self._ready):
            with self._lock:
                self._ready, self._of = tuple(sorted(ready)), {}


def _mixed(*ids: str) -> bytes:
    return hashlib.blake2b(" ".join(ids).encode(), digest_size=8).digest()

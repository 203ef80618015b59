"""Which nodes have a relay, and which relay each agent reports to."""

from __future__ import annotations

import hashlib
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ray_sentinel.actors.hosts import RayNode

log = logging.getLogger(__name__)

FEWER = 0.8
"""Relays stay until fewer nodes are left than this share of the number that made relays necessary.
"""

Answers = Callable[[], bool | None]
"""Returns whether a relay answers; None while that is open."""


class Relays:
    """``step`` is called by one thread, ``of`` by any."""

    def __init__(
        self,
        above: int,
        agents: int,
        found: Callable[[], Collection[str]],
        start: Callable[[Sequence[RayNode]], Mapping[str, Answers]],
        drop: Callable[[str], None],
    ) -> None:
        """In a cluster of more than ``above`` nodes (0: never), ``agents`` of them share a relay.
        ``found`` returns the nodes with a relay from an earlier coordinator. ``start`` creates the
        relays of some nodes, or finds them, by node id. ``drop`` ends the relay of a node."""
        self._above, self._agents = above, agents
        self._found: Callable[[], Collection[str]] | None = found
        self._start, self._drop = start, drop
        self._wanted = 0
        self._made: dict[str, Answers] = {}
        self._failed: Counter[str] = Counter()
        """How often the relay of a node did not answer."""
        self._dropping: set[str] = set()
        self._ready: tuple[str, ...] = ()
        self._of: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, node_id: str) -> str:
        """The node whose relay receives this one's reports; empty if the coordinator does."""
        ready = self._ready
        if not ready or 2 * len(ready) < self._wanted:
            # The first relay that answers must not get all agents.
            return ""
        with self._lock:
            if (known := self._of.get(node_id)) is None:
                # When a relay comes or goes, only the agents that get it or lose it are moved
                # (rendezvous hashing).
                known = max(ready, key=lambda relay: _mixed(relay, node_id))
                self._of[node_id] = known
        return known

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose relays answer."""
        return self._ready

    @property
    def wanted(self) -> int:
        """How many relays there should be for the nodes of the last step."""
        return self._wanted

    def step(self, nodes: Mapping[str, RayNode], free: Collection[str]) -> None:
        """Keep as many relays as the living ``nodes`` need, on those that are ``free`` for one:
        watched, and not about to go. What could not be ended is ended in the next step."""
        self._take_over(nodes)
        least = self._above * (FEWER if self._made else 1.0)
        enough = math.ceil(len(nodes) / self._agents) if self._agents else 0
        self._wanted = enough if len(nodes) > least else 0
        self._failed = Counter({key: n for key, n in self._failed.items() if key in nodes})
        # One node more or less must neither create nor end a relay.
        most = self._wanted + 1 if self._wanted else 0
        stays = set(sorted(self._made.keys() & free, key=self._rank)[:most])
        for node_id in self._made.keys() - stays:
            self._end(node_id)
        new = self._candidates(nodes, free)[: max(0, self._wanted - len(stays))]
        self._made.update(self._start([nodes[node_id] for node_id in new]))
        self._dropping.difference_update(new)
        self._poll()
        for node_id in list(self._dropping):
            self._drop(node_id)
            self._dropping.discard(node_id)

    def _take_over(self, nodes: Mapping[str, RayNode]) -> None:
        if self._found is not None and nodes:
            found, self._found = self._found(), None
            self._made = dict(self._start([nodes[key] for key in found if key in nodes]))

    def _rank(self, node_id: str) -> tuple[bool, bytes]:
        """A sort key with which those that answer come first."""
        return node_id not in self._ready, _mixed(node_id)

    def _candidates(self, nodes: Mapping[str, RayNode], free: Iterable[str]) -> list[str]:
        # The head already has the coordinator.
        found = {key for key in free if key in nodes and not nodes[key].is_head}
        return sorted(found - self._made.keys(), key=lambda key: (self._failed[key], _mixed(key)))

    def _poll(self) -> None:
        ready = set(self._ready)
        for node_id, answers in list(self._made.items()):
            answer = answers()
            if answer and node_id not in ready:
                ready.add(node_id)
                log.info("node %s has a relay", node_id[:8])
            elif answer is False:
                # The next step makes one elsewhere, or here again where no other node is left.
                self._failed[node_id] += 1
                ready.discard(node_id)
                self._end(node_id)
        self._use(ready)

    def _end(self, node_id: str) -> None:
        self._made.pop(node_id, None)
        self._dropping.add(node_id)
        self._use(set(self._ready) - {node_id})
        log.info("node %s has no relay any more", node_id[:8])

    def _use(self, ready: set[str]) -> None:
        with self._lock:
            if ready != set(self._ready):
                self._ready, self._of = tuple(sorted(ready)), {}


def _mixed(*ids: str) -> bytes:
    return hashlib.blake2b(" ".join(ids).encode(), digest_size=8).digest()

"""Follows Ray's nodes: keeps an agent on each living one, and removes what is left of dead ones."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnschedulableError, RayError

from ray_sentinel.actors.deployment import placement
from ray_sentinel.actors.hosts import (
    DEATH_REASONS,
    EXPECTED_DEATHS,
    RayNode,
    as_node,
    host_label,
    ray_nodes,
)
from ray_sentinel.actors.ray_api import last_line
from ray_sentinel.backoff import Backoff
from ray_sentinel.engine.events import AnyEvent, NodeDraining, NodeJoined, NodeLeft
from ray_sentinel.model.status import Unwatched
from ray_sentinel.progress.proc.process_memory import memory_files

log = logging.getLogger(__name__)

FRESH_SECONDS = 3.0
"""Seconds within which an agent must have reported to need no ping."""
START_SECONDS = 10.0
"""Seconds of silence of its agent after which a node is shown as unwatched even without a known
reason. Lost nodes are the engine's business, and found sooner."""
SWEEP_SECONDS = 30.0
"""Seconds between two searches for unneeded placement groups; the table of groups may be long."""
RELAY_STARTS_SECONDS = 60.0
"""Seconds that a relay has to answer for the first time."""
RELAY_HANGS_SECONDS = 15.0
"""Seconds that a relay may be silent which has answered before, or which Ray starts again."""
AWAY_SECONDS = 5.0
"""Seconds after which Ray's control store counts as away if it has not listed its nodes."""
AWAY = (
    "Ray's control store (GCS) does not answer: nodes that join or leave are not seen, and what "
    "Ray is to start again waits for it"
)
DRAINED = "it is being drained and has no rank: it is left alone, so that it can go"
WAVE = 64
"""Most agents that start at once: each is a placement group and an actor in Ray's control store, a
worker on its node, and a package to be shipped there."""
WAVE_SECONDS = 10.0
"""Seconds after which an agent that has not reported no longer keeps others from being started."""
NEXT_WAVE = f"its agent is started after others: no more than {WAVE} start at once"
RETRY = Backoff(first=2.0, most=60.0)
"""How long to wait between two attempts to start an agent, in seconds."""


class FleetMember:
    """One living node and its agent. Times are seconds on the coordinator's clock."""

    def __init__(self, node: RayNode, now: float) -> None:
        self.node = node
        self.handle: Any = None
        """The agent's actor handle; None if the agent was not started, or not found yet."""
        self.since = now
        """When the node joined, or its agent was started last."""
        self.problem = ""
        """Why the node is not watched, for people; empty if nothing is known to be wrong."""
        self.failures = 0
        """Attempts to start the agent that failed since it last reported."""
        self.retry_at = 0.0
        """The earliest time of the next attempt."""
        self.released = False
        """Whether the agent was taken off, so that the node can go."""
        self.in_wave = False
        """Whether its agent was created by us, not found."""
        self.ping: Any = None
        """The reference of the answer to the ping that is under way; None if there is none."""


class Fleet:
    """The reconciler. ``step`` is called by one thread; the rest may be called from any."""

    def __init__(
        self,
        config: bytes,
        heard: Callable[[str], float | None],
        draining: Callable[[], dict[str, float]] = dict,
        tell: Callable[[AnyEvent], object] = lambda event: None,
    ) -> None:
        """``heard`` returns when a node's agent last reported; ``draining`` is as in
        ``draining_now``; ``tell`` is called with what joins, leaves or is to leave."""
        self._config = config
        self._ask_draining, self._tell = draining, tell
        self._draining: dict[str, float] = {}
        self._heard = heard
        self._slots: dict[str, FleetMember] = {}
        self._nodes: dict[str, RayNode] = {}
        self._lock = threading.Lock()
        self._sweep_at = 0.0
        self._asked_at: float | None = None
        """Since when Ray's control store has been asked for its nodes in vain (monotonic)."""

    def handle(self, node_id: str) -> Any:
        """The agent's actor handle, or None if there is none."""
        with self._lock:
            slot = self._slots.get(node_id)
            return slot.handle if slot else None

    def handles(self) -> dict[str, Any]:
        """All agents by node id."""
        with self._lock:
            return {key: slot.handle for key, slot in self._slots.items() if slot.handle}

    def nodes(self) -> dict[str, RayNode]:
        """Living nodes by id."""
        with self._lock:
            return {key: slot.node for key, slot in self._slots.items()}

    @property
    def size(self) -> int:
        """The number of living nodes."""
        return len(self._slots)

    def departed(self, node_id: str, now: float) -> NodeLeft | None:
        """A node's departure, even if no coordinator was running to see it; None if Ray lists it as
        living, or lists nothing yet."""
        with self._lock:
            seen = self._nodes
        node = seen.get(node_id)
        if not seen or (node is not None and node.alive):
            return None
        return _departure(node_id, node, now)

    def label(self, node: RayNode) -> str:
        """The node's name for people."""
        return host_label(node, self._nodes.values())

    def unwatched(self, now: float) -> tuple[Unwatched, ...]:
        """Living nodes without a reporting agent, and why."""
        with self._lock:
            slots = list(self._slots.values())
        return tuple(
            Unwatched(id=slot.node.id, host=self.label(slot.node), reason=reason)
            for slot in slots
            if (reason := self._why_unwatched(slot, now))
        )

    def _why_unwatched(self, slot: FleetMember, now: float) -> str:
        if slot.released:
            return slot.problem
        heard = self._heard(slot.node.id)
        if heard is not None and now - heard <= FRESH_SECONDS:
            return ""
        if slot.problem:
            return slot.problem
        if now - max(slot.since, heard or 0.0) < START_SECONDS:
            return "" if heard is not None else "the agent is starting"
        return f"the agent has not reported for {now - (heard or slot.since):.0f} s"

    def step(self, now: float) -> None:
        """Compare with ``ray.nodes()``, create and drop agents.

        Ray's control store may fail at any point, and the step then raises what it raised.
        """
        seen = ray_nodes(self._listed())
        if not any(node.alive for node in seen.values()):
            # A control store that has just begun is empty; it cannot be right, because we run on a
            # living node.
            return
        with self._lock:
            self._nodes = seen
        self._forget_dead(seen, now)
        self._add_new(seen, now)
        self._sweep(seen, now)
        self._note_draining(now)
        slots, groups = list(self._slots.values()), cache(placement.groups)
        for slot in slots:
            if slot.handle is not None:
                self._check(slot, now, groups)
        self._start_some(slots, now)

    def _start_some(self, slots: list[FleetMember], now: float) -> None:
        """Start the next of the agents that wait, so that no more than ``WAVE`` start at once."""
        due = [s for s in slots if s.handle is None and not s.released and now >= s.retry_at]
        if not due:
            return
        room = WAVE - sum(self._is_starting(slot, now) for slot in slots)
        # The agents of an earlier coordinator exist already, and cost only a look.
        there = placement.agents()
        found = [slot for slot in due if slot.node.id in there]
        new = [slot for slot in due if slot.node.id not in there]
        groups = placement.groups() if found or room > 0 else {}
        for slot in (*found, *new[: max(0, room)]):
            slot.in_wave = slot.node.id not in there
            self._start(slot, now, groups)
        for slot in new[max(0, room) :]:
            if not slot.failures:
                slot.problem = NEXT_WAVE

    def _is_starting(self, slot: FleetMember, now: float) -> bool:
        if slot.handle is None or not slot.in_wave or now - slot.since > WAVE_SECONDS:
            return False
        heard = self._heard(slot.node.id)
        return heard is None or heard < slot.since

    def _listed(self) -> list[dict[str, Any]]:
        """Ray's nodes; waits while the control store is away, or raises."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        entries: list[dict[str, Any]] = ray.nodes()
        self._asked_at = None
        return entries

    def _forget_dead(self, seen: Mapping[str, RayNode], now: float) -> None:
        living = {key for key, node in seen.items() if node.alive}
        for node_id in [key for key in self._slots if key not in living]:
            left = _departure(node_id, seen.get(node_id), now)
            with self._lock:
                del self._slots[node_id]
            self._tell(left)
            # Due until a sweep succeeds, even if one fails now.
            self._sweep_at = now
            log.warning("node %s has left %s", node_id[:8], left.reason)

    def _sweep(self, seen: Mapping[str, RayNode], now: float) -> None:
        """Free what dead nodes held: regularly, and after each departure. Retried with each step
        until it succeeds."""
        if now >= self._sweep_at:
            self._drop_dead({key for key, node in seen.items() if node.alive})
            self._sweep_at = now + SWEEP_SECONDS

    def _drop_dead(self, living: Collection[str]) -> None:
        """Drop dead nodes, including those that a previous coordinator left behind."""
        groups = placement.groups()
        for node_id in groups.keys() - living:
            placement.drop(node_id, groups)
            log.info("dropped the agent and group of the dead node %s", node_id[:8])

    def _add_new(self, seen: Mapping[str, RayNode], now: float) -> None:
        for node in seen.values():
            if node.alive and node.id not in self._slots:
                joined = NodeJoined(time=now, node=as_node(node, seen.values()))
                with self._lock:
                    self._slots[node.id] = FleetMember(node, now)
                self._tell(joined)
                log.info("node %s (%s) has joined", node.id[:8], node.address)

    def _note_draining(self, now: float) -> None:
        """Record nodes that Ray has begun to drain since the last look."""
        told = {key: at for key, at in self._ask_draining().items() if key in self._slots}
        new = {key: at for key, at in told.items() if self._draining.get(key) != at}
        with self._lock:
            self._draining = told
        for node_id, deadline in new.items():
            self._tell(NodeDraining(time=now, node_id=node_id, deadline=deadline))
            log.info("node %s is being drained", node_id[:8])

    def draining(self) -> dict[str, float]:
        """Living nodes that are being drained, each with the time at which it goes; 0 if that is
        not known."""
        with self._lock:
            return dict(self._draining)

    def notes(self) -> tuple[str, ...]:
        """Notes on the nodes for people."""
        with self._lock:
            told = [
                (slot.node, at)
                for key, at in self._draining.items()
                if (slot := self._slots.get(key)) is not None
            ]
        asked_at = self._asked_at
        away = asked_at is not None and time.monotonic() - asked_at > AWAY_SECONDS
        return (
            *filter(None, (AWAY if away else "",)),
            *(draining_note(self.label(n), at) for n, at in told),
        )

    def _start(self, slot: FleetMember, now: float, groups: placement.Groups) -> None:
        if slot.node.id in self._draining and not placement.has_agent(slot.node.id):
            # Ray would place it nowhere, and its group would wait as a demand.
            self.release((slot.node.id,), DRAINED)
            return
        try:
            handle = placement.start_agent(slot.node, self._config, groups)
        except (RayError, ValueError, RuntimeError) as error:
            # Lost a race for the name, or the node died just now: the next step knows more.
            self._failed(slot, now, last_line(error))
            return
        with self._lock:
            left = slot.released
            slot.handle = None if left else handle
        if left:
            # ``release`` came while it was made, and found nothing to drop.
            placement.drop(slot.node.id)
            return
        slot.since = now
        if slot.problem == NEXT_WAVE:
            slot.problem = ""
        slot.ping = handle.ping.remote()

    def _check(self, slot: FleetMember, now: float, groups: Callable[[], placement.Groups]) -> None:
        heard = self._heard(slot.node.id)
        if heard is not None and now - heard <= FRESH_SECONDS:
            slot.problem, slot.failures, slot.ping = "", 0, None
            return
        if slot.ping is None:
            slot.ping = slot.handle.ping.remote()
            return
        ready, _ = ray.wait([slot.ping], timeout=0)
        if not ready:
            return
        ping, slot.ping = slot.ping, None
        try:
            ray.get(ping)
        except (ActorDiedError, ActorUnschedulableError) as error:
            # For good: its constructor failed, or its group is gone.
            placement.drop(slot.node.id, groups())
            slot.handle = None
            self._failed(slot, now, last_line(error))
        except RayError as error:
            # Mostly ActorUnavailableError: Ray is restarting it.
            slot.problem = f"the agent is restarting: {last_line(error)}"

    def _failed(self, slot: FleetMember, now: float, reason: str) -> None:
        slot.failures += 1
        wait = RETRY.delay(slot.failures)
        slot.retry_at = now + wait
        slot.problem = f"the agent could not be started: {reason}"
        log.warning("node %s: %s; again in %.0f s", slot.node.id[:8], slot.problem, wait)

    def release(self, node_ids: Iterable[str], reason: str) -> None:
        """Take the agent off a node, so that it can scale down, until ``recall``."""
        left = []
        with self._lock:
            for node_id in node_ids:
                slot = self._slots.get(node_id)
                if slot is not None and not slot.released:
                    slot.released, slot.problem, slot.handle = True, reason, None
                    left.append(slot)
        try:
            groups = placement.groups() if left else {}
            while left:
                if left[-1].released:  # not recalled while others were dropped
                    placement.drop(left[-1].node.id, groups)
                    log.info("released node %s: %s", left[-1].node.id[:8], reason)
                left.pop()
        finally:
            with self._lock:
                for slot in left:
                    slot.released, slot.problem = False, ""

    def recall(self, node_id: str, now: float) -> None:
        """Put the agent back on a released node with the next step."""
        with self._lock:
            slot = self._slots.get(node_id)
            if slot is None or not slot.released:
                return
            slot.released, slot.problem, slot.retry_at, slot.since = False, "", 0.0, now
        log.info("node %s is watched again", node_id[:8])

    def released(self) -> frozenset[str]:
        """Nodes whose agent was taken off."""
        with self._lock:
            return frozenset(key for key, slot in self._slots.items() if slot.released)

    def restart(self, node_id: str) -> bool:
        """Kill a node's agent so that Ray restarts it. False if there is none."""
        handle = self.handle(node_id)
        if handle is None:
            return False
        ray.kill(handle, no_restart=False)
        return True


def relay_pings(nodes: Iterable[RayNode]) -> dict[str, RelayPing]:
    """The relays of some nodes, created or found, by node id, in the form that ``Relays`` needs."""
    groups = cache(placement.groups)
    return {node.id: RelayPing(node, groups) for node in nodes}


class RelayPing:
    """Tells whether a node's relay answers; the relay is created with it."""

    def __init__(self, node: RayNode, groups: Callable[[], placement.Groups]) -> None:
        self._node = node
        self._handle: Any = None
        self._answered = False
        self._asked_at = time.monotonic()
        try:
            self._handle = placement.start_relay(node, groups())
            self._ping = self._handle.ping.remote()
        except (RayError, ValueError, RuntimeError) as error:
            self._warn(last_line(error))

    def __call__(self) -> bool | None:
        if self._handle is None:
            return False
        ready, _ = ray.wait([self._ping], timeout=0)
        if ready:
            try:
                ray.get(self._ping)
            except ActorDiedError as error:
                self._warn(last_line(error))
                return False
            except RayError:
                self._ping = self._handle.ping.remote()  # Ray is starting it again
            else:
                self._answered, self._asked_at = True, time.monotonic()
                self._ping = self._handle.ping.remote()
                return True
        patience = RELAY_HANGS_SECONDS if self._answered else RELAY_STARTS_SECONDS
        if time.monotonic() - self._asked_at < patience:
            return None
        self._warn(f"it has not answered for {patience:.0f} s")
        return False

    def _warn(self, why: str) -> None:
        log.warning("the relay of node %s is done without: %s", self._node.id[:8], why)


def _departure(node_id: str, node: RayNode | None, now: float) -> NodeLeft:
    """A node's end as Ray reports it; ``node`` is None if Ray no longer knows it."""
    reason = DEATH_REASONS.get(node.death_reason, "") if node else "Ray forgot it"
    if node and node.death_message:
        reason = f"{reason}: {node.death_message}"
    expected = node is not None and node.death_reason in EXPECTED_DEATHS
    return NodeLeft(time=now, node_id=node_id, expected=expected, reason=reason)


# Nodes that Ray drains: what still runs there must leave.


def draining_now() -> dict[str, float]:
    """The nodes that are being drained, by id, and when each goes (Unix seconds; 0 without a set
    time). Empty if this version of Ray does not report it."""
    from ray._private.state import state

    try:
        told = state.get_draining_nodes()
    except AttributeError:
        return {}
    return {node_id: max(0, deadline) / 1000 for node_id, deadline in told.items()}


def draining_note(host: str, deadline: float) -> str:
    """A note for people.

    >>> draining_note("n1", 0.0)
    'n1 is being drained: it goes once nothing runs there'
    >>> draining_note("n1", 3661.0)
    'n1 is being drained: it goes once nothing runs there, or at 01:01:01 UTC'
    """
    by = time.strftime(", or at %H:%M:%S UTC", time.gmtime(deadline)) if deadline else ""
    return f"{host} is being drained: it goes once nothing runs there{by}"


# Which nodes may be left alone, so that an autoscaler can take them away.
#
# A detached actor keeps a node from scaling down even if it takes no resources. A node is left when
# it has had no rank for ``agent.idle_release_seconds`` and nothing of Ray runs on it, and watched
# again as soon as something does. Where nothing scales, no node is ever left.

Resources = Mapping[str, Mapping[str, float]]
"""Amounts by resource, by node id."""

_NOT_WORK = ("node:", "bundle_group", "object_store_memory")
_EPSILON = 1e-6


def autoscales(environ: Mapping[str, str] = os.environ, proc: Path = Path("/proc")) -> bool:
    """Whether this cluster has an autoscaler, as seen from its head.

    Kubernetes runs it in another container; elsewhere Ray's monitor was given its configuration.
    """
    if "KUBERNETES_SERVICE_HOST" in environ:
        return True
    pids = (int(folder.name) for folder in proc.iterdir() if folder.name.isdigit())
    lines = memory_files(pids, "cmdline", proc)
    return any(b"monitor.py" in line and b"--autoscaling-config" in line for line in lines.values())


def unused_now() -> frozenset[str]:
    """The nodes on which nothing runs now; none if this version of Ray does not report it."""
    from ray._private import state

    try:
        return unused(state.total_resources_per_node(), state.available_resources_per_node())
    except AttributeError:
        return frozenset()


def unused(total: Resources, available: Resources) -> frozenset[str]:
    """The nodes on which nothing of Ray uses any resource.

    >>> sorted(unused({"a": {"CPU": 2}, "b": {"CPU": 2}}, {"a": {"CPU": 2}, "b": {"CPU": 1}}))
    ['a']
    """
    return frozenset(
        node_id
        for node_id, amounts in total.items()
        if all(
            available.get(node_id, {}).get(name, 0.0) >= amount - _EPSILON
            for name, amount in amounts.items()
            if not name.startswith(_NOT_WORK)
        )
    )


def to_release(
    idle_seconds: Mapping[str, float],
    free: Collection[str],
    heads: Collection[str],
    limit: float,
) -> frozenset[str]:
    """The nodes to release. ``idle_seconds`` is for how long each has had no rank; the head stays
    watched."""
    if limit <= 0:
        return frozenset()
    return frozenset(
        node_id
        for node_id, seconds in idle_seconds.items()
        if seconds > limit and node_id in free and node_id not in heads
    )

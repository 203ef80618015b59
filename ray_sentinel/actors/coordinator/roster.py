"""The last report of each agent, its restarts, and what it no longer needs to send."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from zlib import crc32

import msgspec

from ray_sentinel.actors.hosts import RayNode
from ray_sentinel.actors.messages import AgentInfo, AgentReport
from ray_sentinel.actors.report_deltas import MARK, completed, read_message
from ray_sentinel.config import Config
from ray_sentinel.model.status import NodeStatus
from ray_sentinel.store.prometheus.scrape_config import scrape_target

LONGEST_INTERVAL = 2.0
"""Longest interval between two reports, in seconds: rules see movements in time only if they hear
of them this often."""
RATE_SECONDS = 10.0
"""Seconds over which the rate of reports is measured."""
_Place = tuple[str, int]
"""The boot of a machine, and a PID namespace on it."""


class RosterEntry:
    """The last known state of one agent."""

    def __init__(self, report: AgentReport, at: float) -> None:
        self.report = report
        self.at = at
        self.busy_at = at
        """When it last had a rank, or was first heard of."""
        self.restarts = 0
        self.exits: deque[tuple[int, int]] = deque()
        """(number of the event in the log, order of the exit) of exits not yet acknowledged."""
        self.done: set[int] = set()
        self.before: deque[str] = deque(maxlen=8)
        """The incarnations of the node's previous agents."""


class Roster:
    """The agents' last reports. May be called from any thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.taken = 0
        """How many reports were accepted so far."""
        self.relayed = 0
        """How many of them came by way of relays."""
        self._counted: deque[tuple[float, int]] = deque()
        """How many reports there had been at some moments of the last seconds, each with its time.
        """
        self._entries: dict[str, RosterEntry] = {}
        self._lock = threading.Lock()
        self._targets: tuple[int, tuple[str, ...]] | None = None
        self._raylets: dict[_Place, tuple[int, ...]] | None = None

    def heard(self, node_id: str) -> float | None:
        """When the node's agent last reported, on the coordinator's clock."""
        entry = self._entries.get(node_id)
        return entry.at if entry else None

    def all_heard(self, nodes: Mapping[str, RayNode]) -> bool:
        """Whether every node has reported to this incarnation of the coordinator."""
        return bool(nodes) and all(node_id in self._entries for node_id in nodes)

    def opened(self, data: bytes) -> AgentReport | None:
        """The report that a message contains. None if it builds on a report that is not the last,
        or on something that this version cannot read, so that the whole is needed. Raises
        msgspec.DecodeError if unreadable."""
        try:
            message = read_message(data)
        except msgspec.DecodeError:
            if data.startswith(MARK):
                return None
            raise
        if isinstance(message, AgentReport):
            return message
        with self._lock:
            entry = self._entries.get(message.node)
        return completed(message, entry.report) if entry is not None else None

    def held(self, report: AgentReport) -> int:
        """The sequence number of the report on which the agent's next one may build; 0 for none."""
        with self._lock:
            entry = self._entries.get(report.snapshot.node.id)
            if entry is None or entry.report.incarnation != report.incarnation:
                return 0
            return entry.report.snapshot.sequence

    def store(self, report: AgentReport, now: float, number: int) -> None:
        """Store a report; ``number`` is its place in the event log."""
        node_id = report.snapshot.node.id
        with self._lock:
            self._count(now)
            self.taken += 1
            entry = self._entries.get(node_id)
            if entry is None:
                entry = self._entries[node_id] = RosterEntry(report, now)
                self._changed()
            elif entry.report.incarnation != report.incarnation:
                entry.restarts += 1
                entry.before.append(entry.report.incarnation)
                entry.exits.clear()
                entry.done.clear()
            if _contact(entry.report) != _contact(report):
                self._changed()
            entry.report, entry.at = report, now
            if report.snapshot.ranks:
                entry.busy_at = now
            waiting = {order for _, order in entry.exits} | entry.done
            for ended in report.snapshot.exits:
                if ended.order not in waiting:
                    entry.exits.append((number, ended.order))

    def _count(self, now: float) -> None:
        while self._counted and now - self._counted[0][0] > RATE_SECONDS:
            self._counted.popleft()
        if not self._counted or now - self._counted[-1][0] >= 1.0:
            self._counted.append((now, self.taken))

    def per_second(self, now: float) -> float:
        """Reports per second over the last ``RATE_SECONDS``, or since the first report."""
        with self._lock:
            self._count(now)
            since, before = self._counted[0]
            return (self.taken - before) / max(1.0, now - since)

    def is_late(self, report: AgentReport) -> bool:
        """Whether this report, or a newer one of the node, was accepted. A report that a relay
        passed on, but could not confirm in time, comes again; and one in a relay that hangs may
        come after its agent's own."""
        with self._lock:
            entry = self._entries.get(report.snapshot.node.id)
            if entry is None or report.incarnation in entry.before:
                return entry is not None
        if entry.report.incarnation != report.incarnation:
            # From an agent that has ended, and from which nothing else has come.
            return 0.0 < report.began < entry.report.began
        return entry.report.snapshot.sequence >= report.snapshot.sequence

    def acknowledged(self, report: AgentReport, written: Callable[[int], bool]) -> tuple[int, ...]:
        """The orders of this report's exits that are in the log and need not be sent again."""
        with self._lock:
            entry = self._entries.get(report.snapshot.node.id)
            if entry is None:
                return ()  # the node has gone since
            while entry.exits and written(entry.exits[0][0]):
                entry.done.add(entry.exits.popleft()[1])
            sent = {ended.order for ended in report.snapshot.exits}
            entry.done &= sent
            return tuple(sorted(entry.done))

    def targets(self) -> tuple[str, ...]:
        """Every agent that serves metrics: see ``scrape_target``."""
        return self._versioned()[1]

    def targets_beyond(self, version: int) -> tuple[int, tuple[str, ...] | None]:
        """The version of the targets, which is never 0, and the targets. None if ``version`` is the
        current one: the agent then knows them, even if from another coordinator."""
        newest, targets = self._versioned()
        return newest, None if version == newest else targets

    def _versioned(self) -> tuple[int, tuple[str, ...]]:
        with self._lock:
            if self._targets is None:
                urls = (entry.report.snapshot.metrics_url for entry in self._entries.values())
                targets = tuple(sorted(scrape_target(url) for url in urls if url))
                self._targets = crc32("\n".join(targets).encode()) or 1, targets
            return self._targets

    def idle_seconds(self, now: float) -> dict[str, float]:
        """How long each node has had no rank, by node id."""
        with self._lock:
            return {node_id: now - entry.busy_at for node_id, entry in self._entries.items()}

    def raylets_beside(self, report: AgentReport) -> tuple[int, ...]:
        """The raylets of all agents that see the same processes as this one."""
        with self._lock:
            if self._raylets is None:
                found: dict[_Place, set[int]] = {}
                for entry in self._entries.values():
                    if entry.report.raylet:
                        found.setdefault(_place(entry.report), set()).add(entry.report.raylet)
                self._raylets = {place: tuple(sorted(pids)) for place, pids in found.items()}
            return self._raylets.get(_place(report), ())

    def fresh(self, now: float) -> int:
        """How many agents have reported recently."""
        lost, least = self._config.coordinator.lost_snapshots, self._config.agent.snapshot_interval
        with self._lock:
            return sum(
                now - entry.at <= lost * max(least, entry.report.snapshot.interval)
                for entry in self._entries.values()
            )

    @property
    def due_per_second(self) -> float:
        """Reports per second that the agents make while nothing happens, according to the agents
        themselves; including agents that no longer report, as long as their nodes exist."""
        least = self._config.agent.snapshot_interval
        with self._lock:
            entries = self._entries.values()
            return sum(1.0 / max(least, entry.report.snapshot.interval) for entry in entries)

    @property
    def interval(self) -> float:
        """Seconds between two reports of an agent on whose node nothing happens, chosen so that all
        agents together make about as many as configured. Each agent rounds it up to whole looks."""
        most = self._config.coordinator.reports_per_second
        wanted = len(self._entries) / most if most else 0.0
        return max(self._config.agent.snapshot_interval, min(wanted, LONGEST_INTERVAL))

    def agents(self, now: float) -> tuple[AgentInfo, ...]:
        """Each agent's process; restarts are those that this coordinator has seen."""
        with self._lock:
            entries = list(self._entries.values())
        return tuple(
            AgentInfo(
                node_id=entry.report.snapshot.node.id,
                host=entry.report.snapshot.node.host,
                address=entry.report.snapshot.node.address,
                pid=entry.report.pid,
                incarnation=entry.report.incarnation,
                restarts=entry.restarts,
                age_seconds=round(now - entry.at, 3),
            )
            for entry in entries
        )

    def notes(self) -> tuple[str, ...]:
        """The agents' notes for people."""
        with self._lock:
            entries = list(self._entries.values())
        notes = [
            f"{entry.report.snapshot.node.host}: {note}"
            for entry in entries
            for note in entry.report.notes
        ]
        notes += [
            f"{entry.report.snapshot.node.host}: the agent was restarted {entry.restarts} times"
            for entry in entries
            if entry.restarts
        ]
        return tuple(notes)

    def nodes(
        self, living: Mapping[str, RayNode], label: Callable[[RayNode], str], now: float
    ) -> tuple[NodeStatus, ...]:
        """The watched nodes' lines, the head first."""
        with self._lock:
            known = [(node, self._entries.get(node.id)) for node in living.values()]
        lines = [
            NodeStatus(
                id=node.id,
                host=entry.report.snapshot.node.host or label(node),
                address=node.address,
                metrics_url=entry.report.snapshot.metrics_url,
                snapshot_age_seconds=round(now - entry.at, 3),
                is_head=node.is_head,
                collectors=entry.report.snapshot.collectors,
                memory_bytes=entry.report.memory_bytes,
            )
            for node, entry in known
            if entry is not None
        ]
        return tuple(sorted(lines, key=lambda line: (not line.is_head, line.host)))

    def forget(self, node_id: str) -> None:
        """Drop a node whose agent was removed."""
        with self._lock:
            if self._entries.pop(node_id, None) is not None:
                self._changed()

    def keep(self, node_ids: Collection[str]) -> None:
        """Drop all nodes but these: the others have left, and their last report may come late."""
        with self._lock:
            for node_id in self._entries.keys() - set(node_ids):
                del self._entries[node_id]
                self._changed()

    def _changed(self) -> None:
        """Forget the derived targets and raylets, because an agent was added, has gone or has
        moved. That is rare, while each report asks for both."""
        self._targets = self._raylets = None


def _contact(report: AgentReport) -> tuple[str, int, _Place]:
    """The part of a report that the other agents are told."""
    return report.snapshot.metrics_url, report.raylet, _place(report)


def _place(report: AgentReport) -> _Place:
    """The place of an agent: equal for agents on one machine and in one PID namespace."""
    return report.snapshot.node.boot_id, report.snapshot.node.pid_namespace

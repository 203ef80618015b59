"""What an agent does on its node, without Ray: watches ranks, collects, serves, reports."""

from __future__ import annotations

import logging
import math
import os
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from ray_sentinel.actors.agent.exporting import Exporting
from ray_sentinel.actors.agent.node_evidence import Evidence, missing_tracer
from ray_sentinel.actors.agent.reporting import MOST_EXITS, NodeSampling, Outbox, ReportPace
from ray_sentinel.actors.agent.runtime_env import RuntimeEnvAgentAddress, RuntimeEnvironments
from ray_sentinel.actors.agent.servers import ServerPoll
from ray_sentinel.actors.loops import Loop, Newest
from ray_sentinel.actors.messages import AgentReport, Receipt
from ray_sentinel.actors.metrics import agent_families, train_families
from ray_sentinel.actors.ray_api import session_logs
from ray_sentinel.actors.raylets import raylets
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.clock import BootClock, SteadyClock, WallHistory
from ray_sentinel.collect.runner import Runner, RunnerSettings
from ray_sentinel.config import Config, safe_name
from ray_sentinel.inspection.node import view_node
from ray_sentinel.model.health import NodeView
from ray_sentinel.model.identity import Node
from ray_sentinel.model.metrics import Family
from ray_sentinel.model.progress import Exit, RankSnapshot, Snapshot
from ray_sentinel.model.ray_cluster import RayCluster
from ray_sentinel.progress.discovery.ownership import Neighbours
from ray_sentinel.progress.proc.proc_stat import resident_bytes
from ray_sentinel.progress.rank.own_process import raylet_above
from ray_sentinel.progress.watch import NodeWatch
from ray_sentinel.store.prometheus.scrape_config import scrape_target, target_groups
from ray_sentinel.trusted_path import claim_private_folder

# The agent's own folder on a local disk: collectors run from copies that lie there.


def run_folder(node: Node) -> Path:
    """The folder, the same for every life of this node's agent.

    If somebody else created it first, and could put programs there for us to run, it is a new one
    each time; what an earlier agent left running is then not found. Raises OSError if none can be
    created.
    """
    root = Path(tempfile.gettempdir()) / f"ray_sentinel-{os.getuid()}"
    if problem := claim_private_folder(root):
        made = Path(tempfile.mkdtemp(prefix="ray_sentinel-"))
        log.warning("%s: %s; the agent works in %s: remove the former", root, problem, made)
        return made
    folder = root / "nodes" / node.id[:16]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


log = logging.getLogger(__name__)

Seen = TypeVar("Seen", RankSnapshot, Exit)

MOST_PROBLEMS = 8
"""Most problems with records and ranks that are shown: the last ones."""
ENDED_SECONDS = 120.0
"""Seconds for which a rank that has ended is served as not alive."""
RAYLETS_SECONDS = 10.0
"""Seconds between two looks at the raylets of this host."""
COLLECT_AFTER = 1.0
"""Seconds until the first collector is started: the ranks come before the metrics, here and on the
other nodes of this machine."""
CLUSTER_SECONDS = 10.0
"""Seconds between two questions about the whole cluster: capacities and dead actors change slowly.
"""
CLUSTER_THREAD = "ray-sentinel-cluster"
SETTLE_SECONDS = 10.0
"""Seconds that an agent waits for the other agents of its machine."""
NOT_DEFAULT = (1,)
"""A stand-in for the pids of peers. No raylet has this pid, and it is lower than any, so an agent
with this peer is not the one that takes processes which descend from no raylet."""


class NodeMonitor:
    """The parts of one node's agent and the loop that moves them.

    One thread watches and publishes; another reports, and may wait for the coordinator or for
    Ray's control store as long as it likes: the watch and the metrics go on.
    """

    def __init__(
        self,
        node: Node,
        config: Config,
        storage: DeploymentStorage,
        send: Callable[[AgentReport], Receipt | None],
        ray_metrics: Callable[[], str],
        *,
        log_problem: Callable[[], str] = str,
        cluster: Callable[[], RayCluster] | None = None,
        runtime_env_agent: Callable[[], RuntimeEnvAgentAddress | None] = lambda: None,
    ) -> None:
        """``ray_metrics`` gives the URL of the Ray node's own metrics, "" if it has none;
        ``log_problem`` says why lines of the agent's log are missing; ``cluster`` is given on the
        head, and asks Ray for the whole cluster; ``runtime_env_agent`` says where Ray's own agent
        for runtime environments is asked."""
        self.node = node
        self.config = config
        self._send, self._ask_cluster = send, cluster
        self._clock = SteadyClock(BootClock())
        self._storage, self._log_problem = storage, log_problem
        self._incarnation = uuid.uuid4().hex
        self._began = BootClock().monotonic()
        self._sequence = 0
        self._outbox = Outbox(self._clock)
        self._ended: deque[Exit] = deque(maxlen=MOST_EXITS)
        self._measured: tuple[Family, ...] = ()
        """The collected families, ``train_*`` and ``server_*``."""
        self._receipt = Receipt()
        """The last one, without ``families`` while the coordinator does not answer."""
        self._report_seconds: float | None = None
        self._targets: tuple[str, ...] = ()
        self._sampling = NodeSampling(self._incarnation)
        self._pace = ReportPace(config.agent.snapshot_interval)
        self._raylet = raylet_above(os.getpid())
        self._memory_bytes: int | None = None
        self._heavy = ""
        """A note if the agent uses more memory than it should; otherwise empty."""
        self._problems: tuple[str, ...] = ()
        self._refused: tuple[str, ...] = ()
        """Notes on plugins that others can write to, in their current state."""
        self._neighbours = Neighbours(SETTLE_SECONDS, time.monotonic())
        self._raylets_due = 0.0
        self._loop: Loop | None = None
        self._clustering: Loop | None = None
        self._closing = threading.Lock()
        self._closed = False
        missing = missing_tracer()
        if missing:
            self._problems = (f"{missing}; ranks that attached give their own stacks instead",)
        self.watch = NodeWatch(
            node,
            own_raylet=self._raylet or None,
            job=config.job,
            now=self._clock.now,
            on_exit=self._poll_now,
            tracer=not missing,
        )
        self.wall = WallHistory()
        self.evidence = Evidence(node.host, config, self.watch.record, self.wall)
        self.environments = RuntimeEnvironments(node.host, self._raylet, runtime_env_agent)
        self._reporting = Newest(self._report, name="ray-sentinel-report")
        # Their output may lie on a file system that hangs.
        self._noting = Newest(self.evidence.outputs.note, name="ray-sentinel-outputs")
        self._servers = ServerPoll(ray_metrics)
        self.exporting = Exporting(config, node.host, node.address)
        self.exporting.add_route("/sd", "application/json", self._service_discovery)
        self.runner = Runner(
            self._settings(storage),
            config,
            on_events=self._outbox.add_events,
        )

    def _settings(self, storage: DeploymentStorage) -> RunnerSettings:
        named = self.config.agent.plugin_dir
        shared = Path(named).expanduser() if named else storage.folder("plugins")
        logs = storage.folder("logs")
        return RunnerSettings(
            host=self.node.host,
            run_dir=run_folder(self.node),
            log_dir=logs / safe_name(self.node.host) if logs else None,
            plugin_dirs=(shared,) if shared else (),
            first_start=COLLECT_AFTER,
        )

    def start(self) -> None:
        """Begin to collect and to report."""
        self.runner.start()
        interval = self.config.agent.snapshot_interval
        self._loop = Loop(interval, self._cycle, name="ray-sentinel-watch")
        if (ask := self._ask_cluster) is not None:
            tell = self.runner.set_cluster
            self._clustering = Loop(CLUSTER_SECONDS, lambda: tell(ask()), name=CLUSTER_THREAD)

    def inspect(self) -> NodeView:
        """The current state of the node."""
        node, session = self.node, session_logs()
        return view_node(host=node.host, node_id=node.id, address=node.address, session=session)

    def close(self) -> list[str]:
        """End everything; returns what could not be ended. May be called again, from any thread."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._end()
        return [
            f"{status.unkillable} processes of collector {status.name} on {self.node.host}, which "
            "hang in the kernel"
            for status in self.runner.statuses()
            if status.unkillable
        ]

    def _end(self) -> None:
        if self._clustering is not None:
            self._clustering.stop()
        ended = self._loop is None or self._loop.stop(2.0)
        # It may wait for Ray. What it does then touches nothing that is closed here.
        self._reporting.stop(1.0)
        self._noting.stop()
        self.evidence.close()
        self._servers.close()
        self.runner.stop()
        self.exporting.close()
        if ended:
            # Its files must not be closed while a poll that hangs uses them; they then go with the
            # process.
            self.watch.close()

    def _poll_now(self) -> None:
        if self._loop is not None:
            self._loop.wake()

    def _cycle(self) -> None:
        self.wall.poll()
        self._find_raylets()
        ranks, exits = self.watch.poll()
        self._note_problems()
        now = self._clock.now()
        self._ended.extend(map(self._outbox.add_exit, exits))
        self.runner.set_ranks([found.rank for found in ranks])
        self._servers.watch((found.rank for found in ranks), self.watch.serves)
        self.runner.set_handed_on(self.exporting.handed_on)
        self._publish(ranks, now)
        of_ray = self.watch.ray_processes()
        # Ray keeps what its workers write, and where, but not its drivers'.
        drivers = (one.process for one in of_ray if not one.title)
        self._noting.offer((*(found.rank.process for found in ranks), *drivers))
        ray_exits = self.watch.ray_exits()
        owes = bool(ray_exits) or self._outbox.owes
        if self._pace.due(ranks, of_ray, time.monotonic(), owes=owes):
            seen = Snapshot(
                node=self.node,
                time=now,
                sequence=0,
                ranks=ranks,
                ray_processes=of_ray,
                ray_exits=ray_exits,
            )
            self._reporting.offer(seen)

    def _note_problems(self) -> None:
        refused = self.runner.refused_plugins()
        for problem in refused:
            if problem not in self._refused:
                log.warning("%s", problem)
        self._refused = refused
        for problem in self.watch.problems:
            if problem not in self._problems:
                log.warning("%s", problem)
                self._problems = (*self._problems, problem)[-MOST_PROBLEMS:]

    def _find_raylets(self) -> None:
        """Update whose processes are whose. That changes with the Ray nodes on this machine, and so
        rarely."""
        now = time.monotonic()
        if not self._neighbours.update(self._receipt.raylets, now) and now < self._raylets_due:
            return
        self._raylets_due = now + RAYLETS_SECONDS
        seen = raylets()
        ours = seen.get(self._raylet)
        beside = {pid for pid, address in seen.items() if address == ours}
        if not self._neighbours.settle(beside, now):
            self._raylets_due = now
        known = self._neighbours.raylets
        self.watch.set_peers(known or NOT_DEFAULT, seen.keys() - set(known))

    def _memory(self) -> tuple[int, int]:
        """How much memory we use, which is recorded, and how much we should use at most."""
        taken, limit = resident_bytes(), self.config.agent.memory_bytes
        over = f"the agent takes {taken >> 20} MiB of memory, more than agent.memory_bytes"
        self._heavy = f"{over}, {limit >> 20} MiB" if taken > limit else ""
        self._memory_bytes = taken
        return taken, limit

    def _publish(self, ranks: tuple[RankSnapshot, ...], now: float) -> None:
        recent = [gone for gone in self._ended if now - gone.at < ENDED_SECONDS]
        self._measured = (
            *self.runner.families,
            *train_families(ranks, recent, now),
            *self._servers.families(),
        )
        self.exporting.publish(
            (
                *self._measured,
                *agent_families(
                    *self._memory(),
                    self._report_seconds,
                    self._outbox.lost,
                    self.evidence.runs,
                    self.evidence.capture_seconds,
                ),
                *self._receipt.families,
            )
        )

    def _report(self, seen: Snapshot) -> None:
        """Number what was seen, and report it with all that is to be told by now."""
        self._sequence += 1
        snapshot = msgspec.structs.replace(
            seen,
            sequence=self._sequence,
            ranks=tuple(map(finite, seen.ranks)),
            exits=tuple(map(finite, self._outbox.exits())),
            collectors=self.runner.statuses(),
            samples=self._sampling.due(
                (*self.runner.families, *self._servers.families()), self._measured, time.monotonic()
            ),
            events=self._outbox.take_events(),
            metrics_url=self.exporting.url,
            interval=self._pace.interval,
            clock_shift=self._clock.shift,
        )
        begun = time.monotonic()
        receipt = self._send(
            AgentReport(
                snapshot=snapshot,
                incarnation=self._incarnation,
                began=self._began,
                pid=os.getpid(),
                raylet=self._raylet,
                notes=self._notes(),
                workers_version=self._receipt.workers_version,
                targets_version=self._receipt.targets_version,
                memory_bytes=self._memory_bytes,
            )
        )
        self._report_seconds = time.monotonic() - begun
        self._pace.set_interval(None if receipt is None else receipt.interval)
        if receipt is None:
            self._receipt = msgspec.structs.replace(self._receipt, families=())
        else:
            self._accept_receipt(receipt)

    def _accept_receipt(self, receipt: Receipt) -> None:
        self._receipt = receipt
        self._outbox.acknowledged(receipt.exits)
        if receipt.targets is not None:
            self._targets = receipt.targets
        self._sampling.accept(receipt)
        if receipt.workers is not None:
            self.watch.set_ray_workers(receipt.workers)
        self.watch.set_ray_drivers(receipt.drivers)

    def _notes(self) -> tuple[str, ...]:
        logs = (self._log_problem(), self.runner.log_problem, self._outbox.problem, self._heavy)
        told = (*self._problems, *self._refused[:MOST_PROBLEMS])
        said = (*self._storage.notes, *self.exporting.notes, *told)
        return (*said, *dict.fromkeys(filter(None, logs)))

    def _service_discovery(self) -> bytes:
        """Prometheus HTTP service discovery: all agents, from any of them."""
        own = (scrape_target(self.exporting.url),) if self.exporting.url else ()
        targets = self._targets or own
        groups = target_groups(targets, {"job": "ray_sentinel"}) if targets else []
        return msgspec.json.encode(groups)


def finite(seen: Seen) -> Seen:
    """A rank or an exit, without scalars that are not numbers: JSON has none, and the log is
    JSON."""
    progress = seen.progress
    if progress is None or all(map(math.isfinite, progress.scalars.values())):
        return seen
    kept = {name: value for name, value in progress.scalars.items() if math.isfinite(value)}
    return msgspec.structs.replace(seen, progress=msgspec.structs.replace(progress, scalars=kept))

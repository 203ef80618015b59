"""What the coordinator does: its parts, the loops that move them, and its answers."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import ray

from ray_sentinel import __version__
from ray_sentinel.actors.bundles.bundle import highest_number
from ray_sentinel.actors.bundles.index import bundle_root
from ray_sentinel.actors.bundles.pruning import Pruner
from ray_sentinel.actors.coordinator import idle_nodes
from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.actors.coordinator.executor import Executor
from ray_sentinel.actors.coordinator.fleet import DRAINED, Fleet
from ray_sentinel.actors.coordinator.history import HistoryKeeper, wanted
from ray_sentinel.actors.coordinator.phase_file import PhaseFile
from ray_sentinel.actors.coordinator.prometheus import STEP_SECONDS, PrometheusKeeper
from ray_sentinel.actors.coordinator.ray_actors import RayActors
from ray_sentinel.actors.coordinator.recovery import Restored, restore, resumed_clock
from ray_sentinel.actors.coordinator.roster import Roster
from ray_sentinel.actors.coordinator.timed_capture import WHY, TimedCapture
from ray_sentinel.actors.deployment.environment import forget_identity
from ray_sentinel.actors.deployment.leaving import draining_now
from ray_sentinel.actors.lease import BEAT_SECONDS
from ray_sentinel.actors.logs import write_logs
from ray_sentinel.actors.loops import Loop
from ray_sentinel.actors.messages import (
    AgentReport,
    Description,
    HistoryRequest,
    Receipt,
    pack,
    unpack,
)
from ray_sentinel.actors.metrics import coordinator_families
from ray_sentinel.actors.names import PROTOCOL
from ray_sentinel.actors.orphaned import end_with_raylet
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.bounded import within
from ray_sentinel.clock import SteadyClock, SystemClock
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import AnyAction
from ray_sentinel.engine.events import DumpAsked, PhasesRecalled, Resumed, SnapshotReceived, Tick
from ray_sentinel.errors import UsageError
from ray_sentinel.masking import mask_record
from ray_sentinel.model.metrics import Family
from ray_sentinel.model.status import Status
from ray_sentinel.private_files import be_private
from ray_sentinel.web.page import Owner, Page
from ray_sentinel.web.routes import PageSource

log = logging.getLogger(__name__)

RECOVERY_GRACE = 3.0
"""Seconds after a restart in which agents find us again before silence counts."""
CLOSE_SECONDS = 4.0
"""For each part to end; whoever asks the coordinator to close waits a little longer."""
DISK_SECONDS = 10.0
"""For the disk to say what an earlier coordinator left; it is done without after that."""
DRAINED_SECONDS = 3.0
"""So long a drained node must have had no rank before it is left: its exits are told by then."""


class Coordination:
    """Behind ``coordinator.Coordinator``, whose methods say what each answer is."""

    def __init__(self, config: bytes, deployment: str, secret: bytes) -> None:
        be_private()
        forget_identity()
        self._config_bytes = config
        self._config = msgspec.json.decode(config, type=Config)
        self._storage = DeploymentStorage(self._config, deployment=deployment)
        self._logs = write_logs(self._storage.folder("logs"), "coordinator")
        self._started_at = SystemClock().now()
        # Asked once: it asks Ray's control store, which may be away when somebody asks us.
        self._restarts = int(ray.get_runtime_context().was_current_actor_reconstructed)
        self._node_id = ray.get_runtime_context().get_node_id()
        self._loops: list[Loop] = []
        self._roster = Roster(self._config)
        self._fleet = Fleet(config, self._roster.heard, draining_now)
        self._ray_actors = RayActors()
        self._clock = SteadyClock()
        self._brain, self._pending = self._recover(deployment)
        self._hold_ticks_until = self._clock.now() + (RECOVERY_GRACE if self._restarts else 0.0)
        if self._restarts or self._pending:
            self._brain.feed(Resumed(time=self._clock.now()))
        capture = self._config.capture
        self._timed = TimedCapture(capture.wait_seconds if capture.enabled else 0.0)
        self._phase_file = PhaseFile(self._storage.root)
        self._recall_phases()
        self._cycle_seconds: float | None = None
        self._last_cycle: float | None = None
        self._prometheus = PrometheusKeeper(self._config, self._storage)
        self._history = HistoryKeeper(
            self._storage.folder("history"),
            SystemClock(),
            owner=deployment,
            max_bytes=self._storage.max_bytes,
        )
        self._pruner = Pruner(
            deployment,
            self._storage.max_bytes,
            SystemClock(),
            bundles=self._executor.bundles.root,
            events=self._events_folder.parent if self._events_folder else None,
            history=self._storage.folder("history"),
        )
        self._page = Page(
            PageSource(self._status, self._brain.incidents, self._history.image),
            self._config.coordinator.port,
            Owner(
                deployment=deployment,
                secret=secret,
                job=self._config.job,
                cluster=ray.get_runtime_context().gcs_address,
            ),
        )
        self._executor.diagnose.source = lambda: self._page.link or str(self._storage.root or "")
        self._start_loops()
        self._orphaned = end_with_raylet(self._brain.close)
        log.info("coordinator started, pid %d, files in %s", os.getpid(), self._storage.root)

    def _recover(self, deployment: str) -> tuple[EngineLoop, list[AnyAction]]:
        events = self._storage.folder("events")
        self._events_folder = folder = events / deployment if events else None
        engine, pending, count, newest = self._restored(folder)
        self._clock = resumed_clock(newest, engine.now)
        if count:
            log.info("recovered from %d events; %d unanswered actions", count, len(pending))
        self._executor = Executor(
            self._config, self._fleet, self._storage, engine.incidents(), clock=self._clock
        )
        most = self._config.storage.max_bytes // 4
        brain = EngineLoop(engine, self._clock, self._executor, folder, most)
        self._executor.feed = brain.feed
        return brain, pending

    def _restored(self, folder: Path | None) -> Restored:
        root = bundle_root(self._storage, self._config)
        try:
            taken = within(DISK_SECONDS, lambda: highest_number(root))
            return restore(folder, self._config, taken)
        except TimeoutError:
            self._storage.notes.append(
                f"{self._storage.root} did not answer when the coordinator started: what was known "
                "before is not known now"
            )
            return restore(None, self._config)

    def _recall_phases(self) -> None:
        try:
            phases = within(DISK_SECONDS, self._phase_file.load)
        except TimeoutError:
            return  # they are learned anew
        if phases and not self._brain.learned_phases():
            # A restarted coordinator has them from its log.
            self._brain.feed(PhasesRecalled(time=self._clock.now(), phases=phases))

    def _start_loops(self) -> None:
        config = self._config
        self._start("reconcile", config.coordinator.reconcile_interval, self._reconcile)
        self._start("tick", config.coordinator.tick_interval, self._tick)
        self._start("lease", BEAT_SECONDS, self._pruner.renew)
        self._start("prune", 60.0, self._prune)
        self._start("phases", 20.0, self._save_phases)
        if self._timed.wanted:
            self._start("timed-capture", 1.0, self._capture_when_due)
        self._start("history", 1.0, self._history.step)
        self._start("history-file", 1.0, self._history.save_when_due)
        if self._prometheus.wanted:
            self._start("prometheus", STEP_SECONDS, self._keep_prometheus)
        if config.agent.idle_release_seconds > 0 and idle_nodes.autoscales():
            self._start("idle", 10.0, self._leave_idle_nodes)

    def _start(self, name: str, interval: float, step: Callable[[], None]) -> None:
        self._loops.append(Loop(interval, step, name=f"ray-sentinel-{name}"))

    def _reconcile(self) -> None:
        for event in self._fleet.step(self._clock.now()):
            self._brain.feed(event)
        self._leave_drained_nodes()
        self._roster.keep(self._fleet.nodes().keys() - self._fleet.released())
        self._ray_actors.look()

    def _leave_drained_nodes(self) -> None:
        """An agent would keep a drained node from going."""
        idle_for = self._roster.idle_seconds(self._clock.now())
        for node_id in self._fleet.draining().keys() - self._fleet.released():
            if idle_for.get(node_id, 0.0) >= DRAINED_SECONDS:
                self._fleet.release(node_id, DRAINED)

    def _tick(self) -> None:
        now = self._clock.now()
        if now < self._hold_ticks_until and not self._agents_are_back():
            # Just restarted: what looks like silence is our own absence.
            return
        # What was asked for and not answered: not before there are agents to ask.
        pending, self._pending = self._pending, []
        for action in pending:
            self._brain.act(action)
        begun = time.monotonic()
        self._brain.feed(Tick(time=now))
        self._cycle_seconds = time.monotonic() - begun
        self._last_cycle = self._clock.monotonic()

    def _agents_are_back(self) -> bool:
        nodes = self._fleet.nodes()
        return self._roster.all_heard(nodes) and self._fleet.handles().keys() >= nodes.keys()

    def _save_phases(self) -> None:
        self._phase_file.save(self._brain.learned_phases())

    def _capture_when_due(self) -> None:
        now = self._clock.now()
        _, _, jobs = self._brain.status()
        for job in self._timed.due(jobs, self._brain.incidents(), now):
            self._brain.feed(DumpAsked(time=now, job=job, why=WHY, thorough=True))

    def _keep_prometheus(self) -> None:
        self._prometheus.step(self._roster.targets(), ray.nodes())

    def _leave_idle_nodes(self) -> None:
        now, limit = self._clock.now(), self._config.agent.idle_release_seconds
        free = idle_nodes.unused_now()
        heads = {key for key, node in self._fleet.nodes().items() if node.is_head}
        for node_id in self._fleet.released() - free - self._fleet.draining().keys():
            self._fleet.recall(node_id, now)
        for node_id in idle_nodes.to_release(self._roster.idle_seconds(now), free, heads, limit):
            self._roster.forget(node_id)
            self._fleet.release(
                node_id,
                f"it has had no rank for {limit:.0f} s and was left, so that it can scale down; "
                "it is watched again when something runs there",
            )

    def _prune(self) -> None:
        self._page.keep()
        keep = {
            *self._executor.bundles.open(),
            *filter(None, (self._events_folder,)),
            *self._history.files,
        }
        for path in self._pruner.prune(keep):
            log.info("removed %s: storage.max_bytes is exceeded", path)

    def describe(self) -> bytes:
        """A ``Description``."""
        return pack(
            Description(
                protocol=PROTOCOL,
                version=__version__,
                pid=os.getpid(),
                node_id=self._node_id,
                log_dir=str(self._storage.root or ""),
                config=self._config_bytes,
                started_at=self._started_at,
                restarts=self._restarts,
            )
        )

    def report(self, data: bytes) -> bytes:
        """Take an ``AgentReport``; returns a ``Receipt``. Raises UsageError if unreadable."""
        try:
            report = unpack(data, AgentReport)
        except msgspec.DecodeError as error:
            raise UsageError(f"a report could not be read: {error}") from None
        now = self._clock.now()
        number = self._brain.feed(SnapshotReceived(time=now, snapshot=report.snapshot))
        self._roster.take(report, now, number)
        version, workers = self._ray_actors.on(report.snapshot.node.id, report.workers_version)
        self._history.take(report.snapshot.node.host, report.series)
        return pack(
            Receipt(
                exits=self._roster.acknowledged(report, self._brain.written),
                families=self._families() if report.snapshot.node.is_head else (),
                targets=self._roster.targets(),
                raylets=self._roster.raylets_beside(report),
                workers=workers,
                workers_version=version,
                history=self._wanted_history(),
            )
        )

    def _wanted_history(self) -> HistoryRequest:
        """Nothing while the job's Prometheus has it all."""
        return HistoryRequest() if self._prometheus.url else wanted(len(self._fleet.nodes()))

    async def history(self) -> bytes:
        """The embedded history as it is now: a file that ``diagnose`` reads."""
        return await asyncio.to_thread(self._history.image)

    def _families(self) -> tuple[Family, ...]:
        now, last = self._clock.now(), self._last_cycle
        if last is not None:
            last = self._clock.shown(now) - (self._clock.monotonic() - last)
        return coordinator_families(
            nodes=self._roster.fresh(now),
            unwatched=len(self._fleet.unwatched(now)),
            cycle_seconds=self._cycle_seconds,
            last_cycle=last,
            incidents=self._brain.incidents(),
        )

    async def status(self) -> bytes:
        """A ``Status``."""
        return pack(await asyncio.to_thread(self._status))

    def _status(self) -> Status:
        now = self._clock.now()
        state, verdict, jobs = self._brain.status()
        status = Status(
            state=state,
            verdict=verdict,
            jobs=jobs,
            nodes=self._roster.nodes(self._fleet.nodes(), self._fleet.label, now),
            unwatched=self._fleet.unwatched(now),
            time=self._clock.shown(now),
            log_dir=str(self._storage.root or ""),
            page=self._page.url,
            prometheus=self._prometheus.url,
            history=str(self._history.path or ""),
            notes=(
                *self._page.notes,
                *self._fleet.notes(),
                *self._storage.notes,
                *self._pruner.notes,
                *self._prometheus.notes,
                *self._brain.notes(),
                *self._executor.notes,
                *filter(None, (self._logs.problem,)),
                *filter(None, (self._phase_file.problem,)),
                *self._history.notes,
                *self._roster.notes(),
            ),
        )
        return mask_record(status)

    def page_link(self) -> bytes:
        """The page's URL with its token, a text; empty where it is not served."""
        return pack(self._page.link)

    def nodes(self) -> bytes:
        """The watched nodes' lines: a list of ``NodeStatus``."""
        now = self._clock.now()
        return pack(self._roster.nodes(self._fleet.nodes(), self._fleet.label, now))

    def agents(self) -> bytes:
        """A list of ``AgentInfo``."""
        return pack(self._roster.agents(self._clock.now()))

    def incidents(self) -> bytes:
        """All confirmed incidents, oldest first: a list of ``Incident``."""
        return pack(self._brain.incidents())

    def incident(self, incident_id: str) -> bytes:
        """One ``Incident``. Raises UsageError for an unknown id."""
        for incident in self._brain.incidents():
            if incident.id == incident_id:
                return pack(incident)
        raise UsageError(f"there is no incident {incident_id}")

    def dump(self, job: str = "", why: str = "asked by hand") -> bytes:
        """Capture a running job (all of them without a name) now.

        Returns the incidents that were made for it; empty where no such job runs.
        """
        before = {incident.id for incident in self._brain.incidents()}
        self._brain.feed(DumpAsked(time=self._clock.now(), job=job, why=why))
        return pack([i for i in self._brain.incidents() if i.id not in before])

    async def restart_agent(self, node_id: str) -> bool:
        """Start a node's agent anew. False where there is none."""
        return await asyncio.to_thread(self._fleet.restart, node_id)

    def recall(self, node_id: str) -> None:
        """Watch a released node again: a rank has begun there."""
        self._fleet.recall(node_id, self._clock.now())

    async def close(self) -> list[str]:
        """End the loops and write what waits; the caller kills the actor then."""
        for loop in self._loops:
            loop.stop()
        self._page.close()
        self._executor.diagnose.close()
        last = (
            self._save_phases,
            self._executor.close,
            self._brain.close,
            self._history.close,
            self._prometheus.close,
            self._pruner.close,
        )
        # At once, each on a thread of its own: a disk that hangs keeps none of the others waiting.
        await asyncio.gather(*(asyncio.to_thread(_ended, step) for step in last))
        return []


def _ended(step: Callable[[], object]) -> None:
    try:
        within(CLOSE_SECONDS, step)
    except Exception:  # the others end all the same, and the actor is killed then
        log.exception("a part of the coordinator did not end")

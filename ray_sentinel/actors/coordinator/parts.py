"""The coordinator's parts, connected to each other, and the loops that drive them.

The actor answers its calls from these parts; imported in the actor's own process only.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import ray

from ray_sentinel.actors.bundles.bundle import highest_number
from ray_sentinel.actors.bundles.index import capture_root
from ray_sentinel.actors.bundles.pruning import Pruner
from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.actors.coordinator.event_log.recovery import Restored, restore, resumed_clock
from ray_sentinel.actors.coordinator.executor import Executor
from ray_sentinel.actors.coordinator.fleet import (
    DRAINED,
    Fleet,
    autoscales,
    draining_now,
    relay_pings,
    to_release,
    unused_now,
)
from ray_sentinel.actors.coordinator.gathering.timed_capture import WHY, TimedCapture
from ray_sentinel.actors.coordinator.history import HistoryKeeper, wanted
from ray_sentinel.actors.coordinator.memory import (
    CHECK_SECONDS,
    COLLECT_SECONDS,
    GarbageCollection,
    MemoryGuard,
    fix_large_blocks,
)
from ray_sentinel.actors.coordinator.metrics import coordinator_families
from ray_sentinel.actors.coordinator.phase_file import PhaseFile
from ray_sentinel.actors.coordinator.prometheus import STEP_SECONDS, PrometheusKeeper
from ray_sentinel.actors.coordinator.ray.actors import RayActors
from ray_sentinel.actors.coordinator.ray.deaths import ControlStoreDeaths, RayDeathWatch
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.actors.coordinator.ray.table import TABLE_SECONDS, RayTable
from ray_sentinel.actors.coordinator.relays import Relays
from ray_sentinel.actors.coordinator.roster import Roster
from ray_sentinel.actors.coordinator.shared_answer import SharedAnswer
from ray_sentinel.actors.deployment import placement
from ray_sentinel.actors.deployment.environment import forget_identity
from ray_sentinel.actors.hosts import ray_nodes
from ray_sentinel.actors.lease import BEAT_SECONDS
from ray_sentinel.actors.logs import write_logs
from ray_sentinel.actors.loops import Loop
from ray_sentinel.actors.messages import AgentReport, Description, HistoryRequest, Receipt
from ray_sentinel.actors.names import PROTOCOL
from ray_sentinel.actors.raylets import end_with_raylet
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.bounded import within
from ray_sentinel.clock import SteadyClock, SystemClock
from ray_sentinel.config import Config
from ray_sentinel.engine.events import (
    AnyEvent,
    PhasesRecalled,
    RayDeathsTold,
    RayTableTold,
    SnapshotReceived,
)
from ray_sentinel.errors import UsageError
from ray_sentinel.masking import mask_record
from ray_sentinel.model.incident import RankOutput
from ray_sentinel.model.last_hour import RankAsked
from ray_sentinel.model.metrics import Family
from ray_sentinel.model.process_groups import GroupsReport
from ray_sentinel.model.ray_calls import RayCalls
from ray_sentinel.model.ray_deaths import RayDeath
from ray_sentinel.model.status import CoordinatorStatus, Status
from ray_sentinel.private_files import be_private
from ray_sentinel.progress.proc.proc_stat import resident_bytes
from ray_sentinel.version import __version__
from ray_sentinel.web.page import Owner, Page
from ray_sentinel.web.routes import PageSource

log = logging.getLogger(__name__)

CLOSE_SECONDS = 4.0
"""Seconds that each part has to end; whoever asks the coordinator to close waits a little longer.
"""
DISK_SECONDS = 10.0
"""Seconds that the disk has to say what an earlier coordinator left; after that we do without."""
DRAINED_SECONDS = 3.0
"""Seconds for which a drained node must have had no rank before its agent leaves it: by then all
exits have been reported."""


class CoordinatorParts:
    """Created in the actor's constructor; active until ``close``."""

    def __init__(self, config: bytes, deployment: str, secret: bytes) -> None:
        be_private()
        fix_large_blocks()
        forget_identity()
        self._config = msgspec.json.decode(config, type=Config)
        self._storage = DeploymentStorage(self._config, deployment=deployment)
        self._log_problem = write_logs(self._storage.folder("logs"), "coordinator")
        self.description = self._described(config)
        self._loops: list[Loop] = []
        self.roster = Roster(self._config)
        self.fleet = Fleet(config, self.roster.heard, draining_now, self._feed)
        limits = self._config.coordinator
        self.relays = Relays(
            limits.relays_above,
            limits.agents_per_relay,
            placement.relays,
            relay_pings,
            placement.drop_relay,
        )
        self._ray_actors = RayActors()
        address = ray.get_runtime_context().gcs_address
        self._ray_store = RayStore(address)
        self._ray_table = RayTable(self._ray_store, self._feed_table)
        self._ray_deaths = RayDeathWatch(ControlStoreDeaths(self._ray_store), self._feed_deaths)
        self.clock, self.engine = self._recovered(
            deployment, restarted=bool(self.description.restarts)
        )
        capture = self._config.capture
        self._timed = TimedCapture(capture.wait_seconds if capture.enabled else 0.0)
        self._phase_file = PhaseFile(self._storage.root)
        self._load_phases()
        self._prometheus = PrometheusKeeper(self._config, self._storage)
        self.history = HistoryKeeper(
            self._storage.folder("history"),
            SystemClock(),
            self.engine.rows,
            self._wanted_history,
            begin=self.engine.begun,
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
        self.pulse = SharedAnswer(self.engine.pulse, self.clock)
        """How long the jobs' steps and calls took over the last hour."""
        self.lanes = SharedAnswer(self.engine.lanes, self.clock)
        """What ranks and roles did over the last hour."""
        self._memory = MemoryGuard(self._config.coordinator.memory_bytes, self.engine.free_memory)
        owner = Owner(deployment=deployment, secret=secret, job=self._config.job, cluster=address)
        self.page = Page(self._page_source(), self._config.coordinator.port, owner)
        self._executor.diagnose.source = lambda: self.page.link or str(self._storage.root or "")
        self._start_loops()
        end_with_raylet(self.engine.close)
        log.info("coordinator started, pid %d, files in %s", os.getpid(), self._storage.root)

    def _described(self, config: bytes) -> Description:
        """Made once: it asks Ray's control store, which may be away when somebody asks us."""
        return Description(
            protocol=PROTOCOL,
            version=__version__,
            pid=os.getpid(),
            config=config,
            restarts=int(ray.get_runtime_context().was_current_actor_reconstructed),
        )

    def _page_source(self) -> PageSource:
        engine = self.engine
        return PageSource(
            self.status,
            engine.incidents,
            self.history.image,
            pulse=self.pulse,
            lanes=self.lanes,
            gpus=engine.gpus,
            rank_gpus=engine.rank_gpus,
            ports=engine.ports,
            groups=self.groups,
            rank=engine.rank_series,
            output=self.rank_output,
        )

    def _recovered(self, deployment: str, *, restarted: bool) -> tuple[SteadyClock, EngineLoop]:
        """The engine as an earlier life of this coordinator left it, and the clock for its
        times."""
        events = self._storage.folder("events")
        self._events_folder = folder = events / deployment if events else None
        engine, pending, count, newest = self._restored(folder)
        clock = resumed_clock(newest, engine.now)
        if count:
            log.info("recovered from %d events; %d unanswered actions", count, len(pending))
        self._executor = Executor(
            self._config,
            self.fleet,
            self._storage,
            engine.incidents(),
            clock=clock,
            ended=engine.now,
        )
        most = self._config.storage.max_bytes // 4
        loop = EngineLoop(engine, clock, self._executor, folder, most)
        self._executor.feed = loop.feed
        self._executor.send_undelivered(loop.incidents())
        loop.resume(pending, restarted=restarted)
        return clock, loop

    def _restored(self, folder: Path | None) -> Restored:
        root = capture_root(self._storage, self._config, "incidents")
        try:
            taken = within(DISK_SECONDS, lambda: highest_number(root))
            return restore(folder, self._config, taken)
        except TimeoutError:
            self._storage.notes.append(
                f"{self._storage.root} did not answer when the coordinator started: what was known "
                "before is not known now"
            )
            return restore(None, self._config)

    def _load_phases(self) -> None:
        try:
            phases = within(DISK_SECONDS, self._phase_file.load)
        except TimeoutError:
            return  # they are learned again
        if phases and not self.engine.learned_phases():
            # A restarted coordinator has them from its log.
            self.engine.feed(PhasesRecalled(time=self.clock.now(), phases=phases))

    def _start_loops(self) -> None:
        config, back = self._config, self._agents_are_back
        self._start("reconcile", config.coordinator.reconcile_interval, self._reconcile)
        self._start("tick", config.coordinator.tick_interval, partial(self.engine.tick, back))
        self._start("memory", CHECK_SECONDS, self._memory.step)
        self._start("garbage", COLLECT_SECONDS, GarbageCollection().step)
        self._start("lease", BEAT_SECONDS, self._pruner.renew)
        self._start("prune", 60.0, self._prune)
        self._start("phases", 20.0, self._save_phases)
        if self._timed.wanted:
            self._start("timed-capture", 1.0, self._capture_when_due)
        self._start("ray-table", TABLE_SECONDS / 4, self._poll_ray)
        self._start("history-file", 1.0, self.history.save_when_due)
        if self._prometheus.wanted:
            self._start("prometheus", STEP_SECONDS, self._keep_prometheus)
        if config.agent.idle_release_seconds > 0 and autoscales():
            self._start("idle", 10.0, self._leave_idle_nodes)

    def _start(self, name: str, interval: float, step: Callable[[], None]) -> None:
        self._loops.append(Loop(interval, step, name=f"ray-sentinel-{name}"))

    def _reconcile(self) -> None:
        self.fleet.step(self.clock.now())
        self._leave_drained_nodes()
        watched = self.fleet.nodes().keys() - self.fleet.released()
        self.roster.keep(watched)
        stay = self.fleet.handles().keys() - self.fleet.draining().keys()
        self.relays.step(self.fleet.nodes(), stay)
        self._ray_actors.poll()

    def _leave_drained_nodes(self) -> None:
        """Take agents off drained nodes, because an agent would keep a node from going."""
        idle_for = self.roster.idle_seconds(self.clock.now())
        drained = self.fleet.draining().keys() - self.fleet.released()
        self.fleet.release(
            [key for key in drained if idle_for.get(key, 0.0) >= DRAINED_SECONDS], DRAINED
        )

    def _poll_ray(self) -> None:
        self._ray_table.poll()
        self._ray_deaths.poll()

    def _feed(self, event: AnyEvent) -> None:
        self.engine.feed(event)

    def _feed_deaths(self, deaths: tuple[RayDeath, ...]) -> None:
        self.engine.feed(RayDeathsTold(time=self.clock.now(), deaths=deaths))

    def _feed_table(self, table: RayCalls) -> None:
        self._ray_deaths.set_table(table)
        self.engine.feed(RayTableTold(time=self.clock.now(), table=table))

    def _agents_are_back(self) -> bool:
        nodes = self.fleet.nodes()
        return self.roster.all_heard(nodes) and self.fleet.handles().keys() >= nodes.keys()

    def _save_phases(self) -> None:
        self._phase_file.save(self.engine.learned_phases())

    def _capture_when_due(self) -> None:
        jobs = self.engine.status().jobs
        for job in self._timed.due(jobs, self.engine.incidents(), self.clock.now()):
            self.engine.dump(job, WHY, thorough=True)

    def _keep_prometheus(self) -> None:
        self._prometheus.step(self.roster.targets(), ray_nodes(ray.nodes()).values())

    def _leave_idle_nodes(self) -> None:
        now, limit = self.clock.now(), self._config.agent.idle_release_seconds
        free = unused_now()
        heads = {key for key, node in self.fleet.nodes().items() if node.is_head}
        for node_id in self.fleet.released() - free - self.fleet.draining().keys():
            self.fleet.recall(node_id, now)
        idle = to_release(self.roster.idle_seconds(now), free, heads, limit)
        for node_id in idle:
            self.roster.forget(node_id)
        self.fleet.release(
            idle,
            f"it has had no rank for {limit:.0f} s and was left, so that it can scale down; "
            "it is watched again when something runs there",
        )

    def _prune(self) -> None:
        self.page.restore()
        keep = {
            *self._executor.bundles.open(),
            *filter(None, (self._events_folder,)),
            *self.history.files,
        }
        for path in self._pruner.prune(keep):
            log.info("removed %s: storage.max_bytes is exceeded", path)

    def report(self, data: bytes, *, relayed: bool = False) -> Receipt:
        """Take an ``AgentReport``, or a ``ReportDelta`` for one. Raises UsageError if it cannot be
        read."""
        try:
            report = self.roster.opened(data)
        except msgspec.DecodeError as error:
            raise UsageError(f"a report could not be read: {error}") from None
        if report is None:
            return Receipt()
        snapshot = report.snapshot
        if not self.roster.is_late(report):
            number = self.engine.feed(SnapshotReceived(time=self.clock.now(), snapshot=snapshot))
            self.roster.store(report, self.clock.now(), number)
            self.roster.relayed += relayed
            if self._ray_deaths.are_new(snapshot.node.id, snapshot.ray_exits):
                self._ray_table.hurry()
        return self._receipt(report)

    def _receipt(self, report: AgentReport) -> Receipt:
        node = report.snapshot.node
        version, workers = self._ray_actors.on(node.id, report.workers_version)
        targets_version, targets = self.roster.targets_beyond(report.targets_version)
        return Receipt(
            exits=self.roster.acknowledged(report, self.engine.written),
            families=self._families() if node.is_head else (),
            targets=targets,
            targets_version=targets_version,
            raylets=self.roster.raylets_beside(report),
            workers=workers,
            workers_version=version,
            drivers=self._ray_table.drivers,
            history=self._wanted_history(),
            relay=self.relays.of(node.id),
            interval=self.roster.interval,
            tables=self.engine.tables_of(node.id),
            held=self.roster.held(report),
        )

    def _wanted_history(self) -> HistoryRequest:
        """What the history needs from agents: nothing while the job's Prometheus has it all."""
        return HistoryRequest() if self._prometheus.url else wanted(self.fleet.size)

    def _families(self) -> tuple[Family, ...]:
        now, last = self.clock.now(), self.engine.last_cycle
        if last is not None:
            last = self.clock.shown(now) - (self.clock.monotonic() - last)
        return coordinator_families(
            self._work(now),
            self.engine.incidents(),
            nodes=self.roster.fresh(now),
            unwatched=len(self.fleet.unwatched(now)),
            reports=self.roster.taken,
            relayed=self.roster.relayed,
            last_cycle=last,
        )

    def _work(self, now: float) -> CoordinatorStatus:
        limits, writer = self._config.coordinator, self.engine.writer
        return CoordinatorStatus(
            reports_per_second=round(self.roster.per_second(now), 1),
            reports_due_per_second=round(self.roster.due_per_second, 1),
            relays=len(self.relays.nodes),
            relays_wanted=self.relays.wanted,
            cycle_seconds=self.engine.cycle_seconds,
            memory_bytes=resident_bytes(),
            memory_limit_bytes=limits.memory_bytes,
            series_bytes=self.engine.series_bytes,
            series_limit_bytes=limits.series_bytes,
            log_waiting_bytes=writer.waiting_bytes,
            log_waiting_limit_bytes=writer.most_waiting,
            log_missing=writer.missing,
            shed=self.engine.drop_counts,
        )

    def status(self) -> Status:
        """The whole status, for people."""
        now = self.clock.now()
        of_engine = self.engine.status()
        work = self._work(now)
        status = msgspec.structs.replace(
            of_engine,
            nodes=self.roster.nodes(self.fleet.nodes(), self.fleet.label, now),
            unwatched=self.fleet.unwatched(now),
            time=self.clock.shown(now),
            log_dir=str(self._storage.root or ""),
            page=self.page.url,
            prometheus=self._prometheus.url,
            history=str(self.history.path or ""),
            notes=(
                *self.page.notes,
                *self.fleet.notes(),
                *self._storage.notes,
                *self._pruner.notes,
                *self._prometheus.notes,
                *self.engine.notes(),
                *self._executor.writer.notes,
                *filter(None, (self._log_problem(), self._phase_file.problem)),
                *self.history.notes,
                *self.roster.notes(),
                *_heavy(work, self._memory.exhausted),
            ),
            coordinator=work,
        )
        return mask_record(status)

    def groups(self) -> GroupsReport:
        """The process groups of ranks, as their last dumps report them."""
        return mask_record(self._executor.groups.report(self.clock.shift))

    def rank_output(self, asked: RankAsked) -> RankOutput | None:
        """What a rank wrote last; None if there is no such rank. Blocks for some seconds."""
        rank = self.engine.rank(asked)
        return self._executor.output_of(rank) if rank is not None else None

    async def close(self) -> None:
        """End the loops and write what is waiting."""
        for loop in self._loops:
            loop.stop()
        self.page.close()
        self._executor.diagnose.close()
        last = (
            self._save_phases,
            self._executor.close,
            self.engine.close,
            self.history.close,
            self._prometheus.close,
            self._ray_store.close,
            self._pruner.close,
        )
        # At once, each on a thread of its own: a disk that hangs keeps none of the others waiting.
        await asyncio.gather(*(asyncio.to_thread(_ended, step) for step in last))


_KEPT_LESS = {
    "history": "the nodes' metrics that no rule reads",
    "series": "the nodes' metrics",
    "pulse": "the jobs' pulse",
    "incidents": "the stacks of incidents that are over, which their bundles have",
}


def _heavy(work: CoordinatorStatus, exhausted: bool) -> Iterator[str]:
    if work.memory_bytes > work.memory_limit_bytes:
        left = "; nothing is left that it could do without" if exhausted else ""
        yield (
            f"the coordinator takes {work.memory_bytes >> 20} MiB of memory, more than "
            f"coordinator.memory_bytes, {work.memory_limit_bytes >> 20} MiB{left}"
        )
    if work.shed:
        parts = ", ".join(_KEPT_LESS.get(part, part) for part in work.shed)
        yield f"to stay within coordinator.memory_bytes, less was kept of: {parts}"


def _ended(step: Callable[[], object]) -> None:
    try:
        within(CLOSE_SECONDS, step)
    except Exception:  # the others still end, and the actor is then killed
        log.exception("a part of the coordinator did not end")

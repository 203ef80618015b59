"""What an agent knows about the ranks on its machine, updated with each poll.

    watch = NodeWatch(node, own_raylet=pid)
    ...
    ranks, exits = watch.poll()                       # about once a second

A rank is a process: (pid, start). Whether it attached, re-attached, called ``exec`` or learned its
rank late changes what is reported about it, never which process it is; the same rank number twice
is shown twice. An exit is reported once, with the last progress and the last words; the record is
deleted only some time later, so an agent that is killed in between reports it again when it is
back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.progress import Exit, RankSnapshot, RayExit, RayProcess
from ray_sentinel.progress.ask import NoAnswerError, arm_watchdog
from ray_sentinel.progress.attached import Attached
from ray_sentinel.progress.departures import Departures, Followed
from ray_sentinel.progress.discovery.environment import RECORD_DIR_VARIABLE
from ray_sentinel.progress.discovery.non_ranks import NonRanks
from ray_sentinel.progress.discovery.ownership import Users, is_default_owner, owns
from ray_sentinel.progress.discovery.ranks import Claim, DiscoveredRank, Discovery
from ray_sentinel.progress.discovery.ray_processes import RayProcessWatch
from ray_sentinel.progress.discovery.ray_workers import RayRanks, RayWorker
from ray_sentinel.progress.exits import ExitWatch
from ray_sentinel.progress.last_output import LastOutput
from ray_sentinel.progress.proc.proc_stat import Key
from ray_sentinel.progress.proc.process_memory import ProcessMemory
from ray_sentinel.progress.proc.process_state import StateReader
from ray_sentinel.progress.proc.processes import Process, ProcessTable
from ray_sentinel.progress.proc.tracing import may_trace
from ray_sentinel.progress.rank.who import DEFAULT_JOB
from ray_sentinel.progress.reader import RecordReader
from ray_sentinel.progress.record_view import RecordView
from ray_sentinel.progress.stale import StaleRecords

REPLICA = "ray::ServeReplica:"
"""The beginning of the process title of a Ray Serve replica."""
MAX_COMMAND = 400
"""Most characters of a command line that are passed on."""


class NodeWatch:
    """Watches one machine for one agent. Not thread-safe: one caller polls."""

    def __init__(
        self,
        node: Node,
        *,
        own_raylet: int | None = None,
        job: str = "",
        proc: Path = Path("/proc"),
        folders: Iterable[Path] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        on_exit: Callable[[], None] | None = None,
        tracer: bool = True,
    ) -> None:
        """``own_raylet`` is the pid of the agent's raylet; ``job`` names ranks that name none.

        ``on_exit`` is called in another thread when a rank ends, so that the agent can look at
        once; it must be quick. ``tracer`` is False if no tracer is installed: ranks that attach
        are then asked to leave their stacks themselves when their interpreter is held, as they are
        where the kernel refuses us.
        """
        self._proc, self._tracer = proc, tracer
        self.node = node
        self._job = job or DEFAULT_JOB
        self._raylet = own_raylet
        self._peers: frozenset[int] = frozenset()
        self._strangers: frozenset[int] = frozenset()
        self._monotonic = monotonic
        self._memory = ProcessMemory(proc)
        self._table = ProcessTable(proc, self._memory)
        self.records = RecordReader(folders, proc=proc, monotonic=monotonic, now=now)
        self._discovery, self._others = Discovery(), Discovery()
        self._users = Users()
        self._beside = NonRanks(self._memory)
        self._states = StateReader(proc)
        self._stale = StaleRecords(self.records)
        self._ray = RayRanks(own_raylet, proc)
        self._ray_processes = RayProcessWatch(
            own_raylet, ExitWatch(proc, now=now), LastOutput(proc), proc
        )
        self._workers: tuple[RayWorker, ...] = ()
        self._drivers: tuple[tuple[str, int], ...] = ()
        self._now = now
        self._attached = Attached(proc, self._memory)
        self._departures = Departures(
            ExitWatch(proc, now=now, on_exit=on_exit),
            self._stale,
            self._read_again,
            LastOutput(proc),
            monotonic=monotonic,
            now=now,
        )
        self._views: dict[Key, RecordView] = {}
        self._untold: list[Exit] = []
        """Exits that a poll has seen but not returned, because it failed afterwards."""
        self._armed: set[RecordView] = set()
        self._refusal_said = False
        self._processes: Mapping[int, Process] = {}
        self._engines: Mapping[Key, str] = {}
        """The jobs of inference engines, by the processes above their ranks."""

    def set_peers(self, raylets: Collection[int], strangers: Collection[int] = ()) -> None:
        """Set the raylets (pids) of all agents that share this machine and PID namespace.

        ``strangers`` are raylets without an agent of ours, such as another cluster's: what descends
        from them is theirs, but they get nothing else.
        """
        self._peers = frozenset(raylets)
        self._strangers = frozenset(strangers)

    def set_ray_workers(self, workers: Iterable[RayWorker]) -> None:
        """Set the actors' processes on this node, as Ray knows them; replaces the previous ones."""
        self._workers = tuple(workers)

    def set_ray_drivers(self, drivers: Iterable[tuple[str, int]]) -> None:
        """Set address and pid of the drivers of all jobs, as Ray knows them; replaces the previous
        ones."""
        self._drivers = tuple(drivers)

    def ray_processes(self) -> tuple[RayProcess, ...]:
        """Ray's workers and drivers on this node, among the processes that the last poll saw."""
        now = self._now()
        return self._ray_processes.poll(
            self.node, self._processes, self._drivers, now, self._engines
        )

    def ray_exits(self) -> tuple[RayExit, ...]:
        """How Ray's processes that ended recently have ended."""
        return self._ray_processes.exits(self._now())

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems that are new since the last call: files that are not records, and the like."""
        sources = (
            self.records.problems,
            self._attached.problems,
            self._stale.problems,
            self._ray.problems,
            self._memory.problems,
            self._beside.problems,
            self._users.problems,
        )
        problems = tuple(problem for source in sources for problem in source)
        for source in sources:
            source.clear()
        return problems

    def _read_again(self, key: Key) -> RecordView | None:
        """The newest record of a process that has ended, with what it said after the last scan."""
        view = self._attached.latest.get(key)
        if view is not None:
            self.records.read_again(view)
        return view

    def record(self, pid: int, start: int) -> RecordView | None:
        """The record of a rank that is attached, or that has just ended, as last read."""
        return self._attached.latest.get((pid, start))

    def children(self, pid: int, start: int) -> tuple[Process, ...]:
        """All living descendants of a rank: dataloader workers, compilers, helpers."""
        return tuple(
            process for process in self._processes.values() if (pid, start) in process.lineage
        )

    @property
    def serves(self) -> bool:
        """Whether the last look found replicas of Ray Serve under this agent's raylet."""
        return any(
            process.arguments and process.arguments[0].startswith(REPLICA) and self._owns(process)
            for process in self._processes.values()
        )

    def poll(self) -> tuple[tuple[RankSnapshot, ...], tuple[Exit, ...]]:
        """Poll once. Returns the living ranks of this agent, and those that ended since the last
        poll.

        Raises OSError where /proc is not there.
        """
        # Records are read first: if the process of one is not there afterwards, it has ended. The
        # other way round, a rank that starts in between would count as dead for ever.
        views = self.records.scan()
        table = self._processes = self._table.refresh(self._monotonic())
        self._views = self._attached.update(views, table, self._monotonic())
        self._untold += self._departures.drain()
        found = self._discover(table)
        self._engines = {
            key: item.job for item in found if item.role == "engine" for key in item.process.lineage
        }
        snapshots = self._snapshots(found)
        self._follow(found, table)
        dead = [view for view in views if not _lives(view, table)]
        for view in dead:
            self.records.read_again(view)  # it may have ended since the scan, with last words
        # A worker that attached under many names has left a record of each.
        left = [view for view in views if view.detached]
        for view in (*dead, *left):
            self.records.rest(view)
        self._untold += self._departures.late(dead, self._owned, self._dead_rank)
        self._states.forget({item.process.key for item in found})
        exits, self._untold = tuple(self._untold), []
        return snapshots, exits

    def _discover(self, table: Mapping[int, Process]) -> list[DiscoveredRank]:
        attached = (_claim(view) for view in self._views.values())
        by_ray = self._ray.claims(self._workers, table, self._views.keys(), self._monotonic())
        claims = (*(claim for claim in attached if claim is not None), *by_ray)
        known, foreign = self._users.parted(table, self._raylets)
        found = self._discovery.discover(known, claims)
        if foreign:
            others = self._others.discover(foreign, claims)
            found = (*found, *self._users.apart(others, found))
        self.records.also(
            (Path(folder), self._users.others(item.process))
            for item in found
            if (folder := item.process.environ.get(RECORD_DIR_VARIABLE, ""))
        )
        return self._beside.ranks(
            item
            for item in found
            if not self._departures.has_ended(item.process.key) and self._owns(item.process)
        )

    def _owns(self, process: Process) -> bool:
        return self._owns_below(pid for pid, _ in process.lineage)

    def _owned(self, view: RecordView) -> bool:
        """Whether a process that is now dead was one of this agent's."""
        return self._owns_below([view.header.raylet] if view.header.raylet else [])

    def _owns_below(self, ancestors: Iterable[int]) -> bool:
        return owns(
            ancestors,
            self._raylet,
            self._peers | self._strangers,
            is_default_owner(self._raylet, self._peers),
        )

    @property
    def _raylets(self) -> frozenset[int]:
        """Those of our cluster: what else is called a raylet may be anybody's program."""
        return self._peers if self._raylet is None else self._peers | {self._raylet}

    def _snapshots(self, found: Iterable[DiscoveredRank]) -> tuple[RankSnapshot, ...]:
        snapshots = []
        for item in found:
            key = item.process.key
            view = self._views.get(key)
            reading = self._states.read(
                key,
                self._monotonic(),
                stepping_tid=view.stepping_tid
                if view
                else self._ray.training_tid(item.process, self._monotonic()),
                companion_tid=view.companion_tid if view else 0,
                stamp=view.stamp if view else 0.0,
            )
            if reading is None:
                continue
            if reading.state.state in ("Z", "X") and reading.state.threads <= 1:
                self._departures.missing(key)
            snapshots.append(
                RankSnapshot(
                    rank=self._rank(item),
                    process=reading.state,
                    progress=view.progress if view else None,
                    quiet_seconds=reading.quiet_seconds,
                )
            )
        return tuple(snapshots)

    def _rank(self, item: DiscoveredRank) -> Rank:
        return Rank(
            id=RankId(item.job or self._job, item.attempt, item.rank),
            process=ProcessId(self.node.host, item.process.pid, item.process.start),
            node=self.node.id,
            address=self.node.address,
            local_rank=item.local_rank,
            world_size=item.world_size,
            gpus=item.gpus,
            role=item.role,
            source=item.source,
            command=item.process.shown[:MAX_COMMAND],
        )

    def _dead_rank(self, view: RecordView) -> Rank | None:
        """The rank of a record whose process is gone."""
        claim = _claim(view)
        if claim is None:
            return None
        process = Process(pid=claim.pid, start=claim.start, parent=0, command="")
        return self._rank(claim.found(process))

    def _follow(self, found: Iterable[DiscoveredRank], table: Mapping[int, Process]) -> None:
        """Watch all ranks for their exits, and ask those that cannot be traced to leave stacks
        themselves."""
        current: dict[Key, Followed] = {}
        for item in found:
            key = item.process.key
            view = self._views.get(key)
            current[key] = Followed(rank=self._rank(item), view=view)
            if view is not None and view not in self._armed:
                self._arm(view)
        self._armed &= set(self._views.values())
        self._departures.follow(current, {process.key for process in table.values()})

    def _arm(self, view: RecordView) -> None:
        """Arm a rank to leave its stacks before it hangs, if no tracer may read it."""
        self._armed.add(view)
        allowed = may_trace(view.header.pid, self._proc)
        if self._tracer and allowed is not False:
            return
        if allowed is False and not self._refusal_said:
            self._refusal_said = True
            self._attached.problems.append(
                f"this node's agent may not trace pid {view.header.pid}: stacks come from the "
                "ranks that attached, and the others' are missing; give the agent CAP_SYS_PTRACE"
            )
        try:
            arm_watchdog(view)
        except NoAnswerError as error:
            self._attached.problems.append(str(error))

    def close(self) -> None:
        """Stop the thread and close all files."""
        self._departures.close()
        self._ray_processes.close()
        self.records.close()


def _lives(view: RecordView, table: Mapping[int, Process]) -> bool:
    if not view.this_namespace:
        # Its pid means nothing here; its own agent deletes the record.
        return view.this_boot
    process = table.get(view.header.pid)
    return view.this_boot and process is not None and process.start == view.header.start


def _claim(view: RecordView) -> Claim | None:
    if view.identity is None:
        return None
    return Claim(pid=view.header.pid, start=view.header.start, **view.identity.place())

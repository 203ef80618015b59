"""The state that rules read: the nodes and the jobs as of the latest snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from ray_sentinel.config import Config
from ray_sentinel.engine.jobs import FORGET_SECONDS, JobKey, JobView
from ray_sentinel.engine.last_hour.lanes import MOST_TOGETHER, Lanes
from ray_sentinel.engine.last_hour.pulse import MOST_BYTES, Pulse
from ray_sentinel.engine.phases import PhaseBook
from ray_sentinel.engine.ranks import NEVER, RankView
from ray_sentinel.engine.ray.deaths import EndedRank, RayDeathBook, first_cause
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.engine.ray.jobs import LAST_CALLS_SECONDS, RayJobs
from ray_sentinel.engine.scalars import Scalars
from ray_sentinel.engine.telemetry.gpus import GpuLevels
from ray_sentinel.engine.telemetry.series import Telemetry
from ray_sentinel.model.identity import Node, ProcessId, Rank
from ray_sentinel.model.incident import Culprit, Writer
from ray_sentinel.model.progress import Exit, RankSnapshot, Snapshot
from ray_sentinel.model.ray_deaths import RayDeath

Seen = TypeVar("Seen", RankSnapshot, Exit)

LOST_SECONDS = 60.0
"""Ranks of a lost node count as lost with it for this time, and as ended after it."""
MOST_BOOKS = 64
"""Most jobs whose phases are kept, in addition to running ones."""
OOM_SECONDS = 30.0
"""The kernel log reports a killed process within this time after its end."""
CLOCK_DRIFT = 0.01
"""How much of a growing offset between two clocks is accepted at each snapshot."""
CLOCK_JUMP = 1.0
"""Seconds. If the offset of OFFSETS successive snapshots has grown by more, the node's clock stood
still or was reset: a mere delay in transit comes to an end."""
OFFSETS = 5
"""Number of a node's last snapshots by which its clock is judged."""
WHY_SECONDS = 10.0
"""Seconds for which the end of a Ray job waits for its cause."""
TOGETHER_SECONDS = 60.0
"""Seconds within which the ranks of one attempt are first seen: launchers start theirs at one
moment, agents are deployed within seconds. What is left of an old attempt existed before."""


class NodeState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One node. Times are on the coordinator's clock."""

    node: Node
    joined_at: float
    seen_at: float | None = None
    listened_since: float = NEVER
    """Since when a coordinator has been there to receive its snapshots; earlier ones are lost."""
    left_at: float | None = None
    expected_leave: bool = False
    leave_reason: str = ""
    leaving_since: float | None = None
    """Since when it has been known that the node will go, because it is being drained, or left as
    expected."""
    probe_asked_at: float | None = None
    alive: bool | None = None
    last: tuple[int, float] | None = None
    """Number and time, on the node's clock, of its last snapshot."""
    clock_shift: float = 0.0
    """The clock shift in its last snapshot."""
    offset: float = 0.0
    """The coordinator's clock minus the node's, transit included: the smallest seen recently."""
    offsets: list[float] = []
    """The offsets of the last snapshots."""
    interval: float = 0.0
    """Seconds within which the next snapshot was promised; 0 means as configured."""
    clock_set_at: float = NEVER
    """When its wall clock was last set."""

    @property
    def wall_offset(self) -> float:
        """The coordinator's clock minus the wall clock of the node, on which its ranks stamp."""
        return self.offset - self.clock_shift

    def apply(self, snapshot: Snapshot, now: float) -> None:
        """Apply a snapshot that arrived at ``now``."""
        self._learn_offset(now - snapshot.time, snapshot)
        if self.last is not None and self.clock_shift != snapshot.clock_shift:
            self.clock_set_at = now
        self.node, self.seen_at = snapshot.node, now
        self.last, self.clock_shift = (snapshot.sequence, snapshot.time), snapshot.clock_shift
        self.interval = snapshot.interval
        # Ray decides whether it has left: a snapshot may have been under way.
        self.alive = None
        self.probe_asked_at = None

    def _learn_offset(self, offset: float, snapshot: Snapshot) -> None:
        last = self.last
        if last == (snapshot.sequence, snapshot.time):
            return  # the same again: it was passed on, and not acknowledged in time
        # Another agent has a clock of its own; so has one whose clock was set back.
        begins = last is None or snapshot.sequence <= last[0] or snapshot.time < last[1]
        if begins:
            self.offsets.clear()
        self.offsets.append(offset)
        del self.offsets[:-OFFSETS]
        least = min(self.offsets)
        if begins or offset < self.offset:
            self.offset = offset
        elif len(self.offsets) == OFFSETS and least > self.offset + CLOCK_JUMP:
            self.offset = least
        else:
            self.offset += CLOCK_DRIFT * (offset - self.offset)

    def join(self) -> None:
        """Ray lists the node, possibly again."""
        self.left_at, self.expected_leave, self.leave_reason = None, False, ""
        self.leaving_since = None

    def drain(self, now: float) -> None:
        """Ray announces that the node will go."""
        if self.leaving_since is None:
            self.leaving_since = now

    def leave(self, now: float, reason: str, *, expected: bool) -> None:
        """Ray lists the node as dead."""
        self.left_at, self.leave_reason = now, reason
        # A node whose end was announced may go with its machine, which Ray calls unexpected.
        self.expected_leave = expected or self.leaving_since is not None
        if self.expected_leave:
            self.drain(now)

    def silence(self, now: float) -> float:
        """Seconds since its last snapshot, or since it joined, not counting the time in which the
        coordinator could not receive any."""
        heard_at = self.seen_at if self.seen_at is not None else self.joined_at
        return now - max(heard_at, self.listened_since)


class AttemptJoiner(msgspec.Struct):
    """Finds the attempt of a rank where each node's launcher counts restarts by itself.

    An agent of torchrun counts the failures of its own workers (``TORCHELASTIC_RESTART_COUNT``); a
    node that joins later begins at 0, and a change of membership counts nowhere
    (``torch/distributed/elastic/agent/server``). So ranks that live at the same time and only
    together make up their world belong to one attempt: the highest number that any of them was
    told.
    """

    found: dict[ProcessId, int] = {}
    """Processes that belong to another attempt than the one they were told."""

    def place(self, rank: Rank) -> Rank:
        """The rank under the attempt that it belongs to."""
        attempt = self.found.get(rank.process)
        if attempt is None or attempt == rank.id.attempt:
            return rank
        identity = msgspec.structs.replace(rank.id, attempt=attempt)
        return msgspec.structs.replace(rank, id=identity)

    def join(self, attempts: Iterable[JobView]) -> list[JobView]:
        """Merge jobs that turned out to be one attempt. Returns the jobs that have no ranks
        left."""
        # Each snapshot comes here: cheap for jobs of one attempt, and for attempts that have ended.
        running = [job for job in attempts if job.ended_at is None]
        if len(running) < 2:
            return []
        running = sorted((job for job in running if job.live), key=lambda job: job.attempt)
        views = [view for job in running for view in job.live]
        if len(running) < 2 or not _one_world(views):
            return []
        *others, newest = running
        for job in others:
            self.found |= {view.rank.process: newest.attempt for view in job.live}
            newest.adopt(job)
        return [job for job in others if not job.ranks]

    def forget(self, jobs: Mapping[JobKey, JobView]) -> None:
        """Drop processes that no job contains any more."""
        if self.found:
            known = {process for job in jobs.values() for process in job.ranks}
            self.found = {p: attempt for p, attempt in self.found.items() if p in known}


def _one_world(views: list[RankView]) -> bool:
    """Whether every number of one world is there, each once, and all came together."""
    sizes = {view.rank.world_size for view in views}
    numbers = sorted(view.rank.id.rank for view in views)
    if len(sizes) > 1 or numbers != list(range(sizes.pop() or 0)):
        return False
    seen = [view.first_seen for view in views]
    return max(seen) - min(seen) <= TOGETHER_SECONDS


class ClusterView(msgspec.Struct, kw_only=True, dict=True):
    """All nodes and jobs. Only the engine changes it. ``bind`` sets ``config``."""

    nodes: dict[str, NodeState] = {}
    jobs: dict[JobKey, JobView] = {}
    """Jobs by name and attempt."""
    generations: int = 0
    """The number of the newest generation."""
    attempts: AttemptJoiner = msgspec.field(default_factory=AttemptJoiner)
    books: dict[str, PhaseBook] = {}
    """Phase books by job, the most recently used one last."""
    telemetry: Telemetry = msgspec.field(default_factory=Telemetry)
    gpu_levels: GpuLevels = msgspec.field(default_factory=GpuLevels)
    scalars: Scalars = msgspec.field(default_factory=Scalars)
    ray: RayJobs = msgspec.field(default_factory=RayJobs)
    deaths: RayDeathBook = msgspec.field(default_factory=RayDeathBook)
    open_incidents: dict[JobKey, tuple[str, ...]] = {}
    """Ids of published open incidents, by job and attempt."""

    def bind(self, config: Config) -> ClusterView:
        """Set the configuration, and pass it on to all nodes and jobs."""
        self.config = config
        for book in self.books.values():
            book.bind(config.hang.phase_budgets)
        for job in self.jobs.values():
            self.bind_job(job)
        return self

    def bind_job(self, job: JobView) -> JobView:
        """Give a job its settings and the known durations of its phases."""
        book = self.books.get(job.job) or PhaseBook().bind(self.config.hang.phase_budgets)
        return job.bind(self.config.hang, book)

    def report_interval(self, node: NodeState) -> float:
        """The most seconds between two snapshots of a node."""
        return max(self.config.agent.snapshot_interval, node.interval)

    def lost_after(self, node: NodeState) -> float:
        """Seconds of silence after which a node may be lost."""
        return self.config.coordinator.lost_snapshots * self.report_interval(node)

    def apply(self, snapshot: Snapshot, now: float) -> None:
        """Distribute a node's snapshot over the jobs."""
        node = self.nodes.get(snapshot.node.id)
        if node is None:
            node = self.nodes[snapshot.node.id] = NodeState(node=snapshot.node, joined_at=now)
        silent = node.silence(now)
        missed = silent if silent > self.lost_after(node) else 0.0
        node.apply(snapshot, now)
        self.telemetry.add(snapshot, now, node.offset, self.config.coordinator.series_bytes)
        self.ray.apply(snapshot, now, node.offset)
        self.deaths.apply(snapshot, now, node.offset)
        # The moment of the snapshot on our clock, so that a late one does not look like silence.
        at = min(now, snapshot.time + node.offset)
        homes: dict[ProcessId, set[JobKey]] = {}
        guessed: dict[ProcessId, float] = {}
        views: dict[JobKey, JobView] = {}
        moved = self.attempts.found
        for rank in map(self._placed, snapshot.ranks) if moved else snapshot.ranks:
            key = rank.rank.id.job, rank.rank.id.attempt
            job = views.get(key)
            if job is None:
                job = views[key] = self._job(*key, now)
                job.miss(now - missed, now)
            job.apply(rank, snapshot.node.id, at, snapshot.time)
            homes.setdefault(rank.rank.process, set()).add(key)
            if rank.progress is None:
                guessed[rank.rank.process] = job.ranks[rank.rank.process].first_seen
        for exit_ in map(self._placed, snapshot.exits):
            left = self.jobs.get((exit_.rank.id.job, exit_.rank.id.attempt))
            # Its last words show when it ended; a large process is gone only long after.
            words = exit_.last_words
            spoken = words.time if words is not None and words.kind != "detach" else exit_.at
            ended = min(now, min(exit_.at, spoken) + node.offset)
            # An agent also finds records of ranks that ended before anybody watched: history.
            if left is not None and (exit_.rank.process in left.ranks or ended >= left.first_seen):
                left.record_exit(exit_, ended)
        for event in snapshot.events:
            pid = event.attributes.get("pid", "") if event.kind == "kernel.oom" else ""
            # Older lines of the log may be about a pid that now belongs to another process.
            if pid.isdecimal() and now - event.time - node.offset < OOM_SECONDS:
                for job in self.jobs.values():
                    job.note_oom(snapshot.node.id, int(pid))
        for key, job in list(self.jobs.items()):
            job.mark_gone(snapshot.node.id, homes, at)
            if job.drop_moved_ranks(snapshot.node.id, homes, guessed, at) and not job.ranks:
                del self.jobs[key]
        self._join_attempts({name for name, _ in views})

    def _placed(self, seen: Seen) -> Seen:
        rank = self.attempts.place(seen.rank)
        return seen if rank is seen.rank else msgspec.structs.replace(seen, rank=rank)

    def _join_attempts(self, names: set[str]) -> None:
        for name in names:
            of_name = [job for (known, _), job in self.jobs.items() if known == name]
            for empty in self.attempts.join(of_name):
                del self.jobs[empty.key]

    def advance(self, now: float) -> None:
        """Update what depends on time alone, and drop jobs and nodes that ended long ago."""
        lost = {
            key: node.left_at
            for key, node in self.nodes.items()
            if node.left_at is not None
            and (node.expected_leave or now - node.left_at > LOST_SECONDS)
        }
        for key, job in list(self.jobs.items()):
            job.lose(lost)
            job.advance(now)
            if job.ended_at is not None and now - job.ended_at > FORGET_SECONDS:
                del self.jobs[key]
        self.attempts.forget(self.jobs)
        self._follow_ray(now)
        self._forget_nodes(now)
        jobs: list[tuple[float | None, float, JobView | RayJobView]] = [
            *((job.ended_at, job.last_moved, job) for job in self.jobs.values()),
            *((job.ended_at, job.changed_at, job) for job in self.ray.jobs.values()),
        ]
        bound(((ended, moved, job.pulse) for ended, moved, job in jobs), MOST_BYTES)
        bound(((ended, moved, job.lanes) for ended, moved, job in jobs), MOST_TOGETHER)

    def _follow_ray(self, now: float) -> None:
        self.ray.advance(now)
        self.deaths.advance(now, self.ray.jobs, self._counted_ends)
        for ray_job in self.ray.jobs.values():
            stands = ray_job.ended_at is None and (ray_job.roots or ray_job.standing)
            if stands or first_cause(self.deaths_of(ray_job, now)):
                self._ray_view(ray_job, now)
        for view in self.jobs.values():
            if view.ray_job:
                known = self.ray.jobs.get(view.ray_job)
                moved_at = known.changed_at if known is not None else view.stirred_at
                gone_at = view.ended_at if view.ended_at is not None else now
                view.follow(moved_at, self._known_end(known, now) if known is not None else gone_at)

    def deaths_of(self, ray_job: RayJobView, now: float) -> list[RayDeath]:
        """The deaths of a Ray job, oldest first. Where its actors go on, the end of its driver is
        over, as it was reported."""
        found = self.deaths.of_job(ray_job.id, now)
        if ray_job.ended_at is not None:
            return found
        ended = max((death.at for death in found if death.what == "driver"), default=None)
        if ended is None:
            return found
        return [death for death in found if death.at > ended + LAST_CALLS_SECONDS]

    def _counted_ends(self) -> Iterator[EndedRank]:
        """The ranks that have ended, and whose ends are still judged."""
        for job in self.jobs.values():
            for _, exit_ in job.exits:
                yield exit_.rank.node, exit_.rank.process

    def _known_end(self, ray_job: RayJobView, now: float) -> float | None:
        """When a Ray job ended, once the cause is known: it may be worse than what was reported of
        the job before."""
        ended = ray_job.ended_at
        if ended is None or now - ended > WHY_SECONDS:
            return ended
        told = self.deaths.of_job(ray_job.id, now)
        return ended if any(death.what == "driver" for death in told) else None

    def _ray_view(self, ray_job: RayJobView, now: float) -> None:
        """Create the record of a Ray job's incidents: a job without ranks. For a job that has
        ended, what is known of its end does not create it again."""
        known = self.jobs.get((ray_job.name, 0))
        if known is None or known.ray_job != ray_job.id:
            self._job(ray_job.name, 0, now).ray_job = ray_job.id

    def _forget_nodes(self, now: float) -> None:
        """Drop nodes that have not been heard of for long: they left, or were released. Those on
        which remembered jobs ran are kept."""
        old = {key for key, node in self.nodes.items() if node.silence(now) > FORGET_SECONDS}
        if not old:
            return
        used = {rank.node for job in self.jobs.values() for rank in job.ranks.values()}
        for node_id in old - used:
            del self.nodes[node_id]
            self.telemetry.forget(node_id)
            self.gpu_levels.forget(node_id)
            self.ray.forget(node_id)

    def relearn(self, phases: Mapping[str, Mapping[str, Iterable[float]]]) -> None:
        """Adopt the phase durations (s) that earlier runs of jobs have shown: job → phase →
        seconds."""
        for job, learned in phases.items():
            self._book(job).relearn(learned)

    def learned(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """The learned durations of every job's phases, in the form that ``relearn`` takes."""
        found = {job: book.learned() for job, book in self.books.items()}
        return {job: phases for job, phases in found.items() if phases}

    def listen(self, now: float) -> None:
        """The coordinator was away until now; that time does not count as silence of the nodes, nor
        as a pause of the jobs."""
        heard = [node.seen_at for node in self.nodes.values() if node.seen_at is not None]
        for job in self.jobs.values():
            job.miss(max(heard, default=now), now)
        for node in self.nodes.values():
            node.listened_since = now

    def by_movement(self) -> list[JobView | RayJobView]:
        """The jobs, those that moved last first. The view of a Ray job, which is only a record of
        its incidents, is left out: the job itself is there."""
        moved: list[tuple[float, JobView | RayJobView]] = [
            *((job.last_moved, job) for job in self.jobs.values() if not job.ray_job),
            *((job.changed_at, job) for job in self.ray.jobs.values()),
        ]
        return [job for _, job in sorted(moved, key=lambda pair: -pair[0])]

    def busy_nodes(self) -> set[str]:
        """The nodes of living ranks."""
        return set().union(*(job.live_nodes for job in self.jobs.values()))

    def process_groups(self) -> dict[ProcessId, str]:
        """The process groups of living ranks. A name that several groups share (two ranks have the
        same number) is left out."""
        found: dict[ProcessId, str] = {}
        for job in self.jobs.values():
            if len({rank.rank.id.rank for rank in job.live}) == len(job.live):
                found |= dict.fromkeys((rank.rank.process for rank in job.live), job.job)
        return found

    def host_of(self, node_id: str) -> str:
        """The host label of a node, or its id where it was never seen."""
        view = self.nodes.get(node_id)
        return view.node.host if view else node_id

    def host_at(self, address: str) -> str:
        """The host label of the node with this address."""
        found = (node.node.host for node in self.nodes.values() if node.node.address == address)
        return next(found, address)

    def members(self, culprits: Iterable[Culprit], job: JobView) -> tuple[Writer, ...]:
        """The given processes that are not ranks of the job (drivers and actors, for example) and
        whose node is known."""
        nodes = {node.node.host: key for key, node in self.nodes.items()}
        own = {(process.host, process.pid) for process in job.ranks}
        return tuple(
            Writer(
                process=self._process(nodes[one.host], one.host, one.pid),
                node=nodes[one.host],
                rank=one.rank,
                label="" if one.rank is not None else one.label,
            )
            for one in culprits
            if one.pid is not None and one.host in nodes and (one.host, one.pid) not in own
        )

    def _process(self, node_id: str, host: str, pid: int) -> ProcessId:
        """A process of Ray, whether it lives or has ended."""
        if (track := self.ray.tracks.get(node_id, {}).get(pid)) is not None:
            return track.process
        seen = self.deaths.exits.get(node_id, {}).get(pid)
        return ProcessId(host, pid, seen.start if seen is not None else 0)

    def rank_at(self, node_id: str, pid: int) -> int | None:
        """The number of the rank that this process is or was."""
        found = self.job_at(node_id, pid)
        return found[1].rank.id.rank if found is not None else None

    def job_at(self, node_id: str, pid: int) -> tuple[JobView, RankView] | None:
        """The job and the rank that this process is or was."""
        found = (
            (job, rank)
            for job in self.jobs.values()
            for rank in job.ranks.values()
            if rank.rank.process.pid == pid and rank.node == node_id
        )
        return next(found, None)

    def _book(self, job: str) -> PhaseBook:
        """What is known of a job's phases; if there are too many jobs, those that were used longest
        ago are dropped."""
        book = self.books.pop(job, None) or PhaseBook().bind(self.config.hang.phase_budgets)
        self.books[job] = book
        running = {name for name, _ in self.jobs}
        spare = [name for name in self.books if name not in running and name != job]
        for name in spare[: max(0, len(self.books) - MOST_BOOKS)]:
            del self.books[name]
        return book

    def _job(self, job: str, attempt: int, now: float) -> JobView:
        view = self.jobs.get((job, attempt))
        if view is None or self._is_new_generation(view, now):
            self.generations += 1
            fresh = JobView(
                number=self.generations, job=job, attempt=attempt, first_seen=now, last_moved=now
            )
            view = self.jobs[job, attempt] = fresh.bind(self.config.hang, self._book(job))
        return view

    @staticmethod
    def _is_new_generation(view: JobView, now: float) -> bool:
        # The same job under the same attempt number, started again after all its ranks had gone.
        # Exits of the old one are still being reported for a moment, hence the pause.
        return view.ended_at is not None and now - view.ended_at > 10.0 and not view.live


def bound(kept_of_jobs: Iterable[tuple[float | None, float, Pulse | Lanes]], most: int) -> None:
    """Drop data until the total is within the bound. Each item comes with the time at which its job
    ended (None while it runs) and at which it last moved. The job that ended first is dropped
    first; among running jobs, the one that has stood still longest."""
    kept = [(size, one) for one in kept_of_jobs if (size := one[2].size)]
    total = sum(size for size, _ in kept)
    if total <= most:
        return
    kept.sort(key=lambda pair: (pair[1][0] is None, pair[1][0] or 0.0, pair[1][1]))
    for size, (_, _, one) in kept:
        if total <= most:
            return
        one.clear()
        total -= size

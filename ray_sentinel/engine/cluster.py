"""What rules look at: the nodes and the jobs, as the last snapshots show them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from ray_sentinel.config import Config
from ray_sentinel.engine.attempts import Attempts
from ray_sentinel.engine.gpus import GpuLevels
from ray_sentinel.engine.jobs import FORGET_SECONDS, JobView
from ray_sentinel.engine.phases import PhaseBook
from ray_sentinel.engine.scalars import Scalars
from ray_sentinel.engine.telemetry import Telemetry
from ray_sentinel.model.identity import Node
from ray_sentinel.model.memory import Memory, NodeMemory
from ray_sentinel.model.progress import Exit, RankSnapshot, Snapshot

LOST_SECONDS = 60.0
"""So long after a node was lost its ranks count as what was lost with it; then as ended."""
MOST_BOOKS = 64
"""Jobs whose phases are known, those that run aside."""
OOM_SECONDS = 30.0
"""The kernel's word on a killed process comes within so long of its end."""
CLOCK_DRIFT = 0.01
"""How much of a growing offset between two clocks is believed at each snapshot."""
CLOCK_JUMP = 1.0
"""Seconds; when the offset of so many as OFFSETS snapshots in a row has grown by more, the node's
clock stood still or began anew: what is merely under way for long comes to an end."""
OFFSETS = 5


class NodeView:
    """One node; times are the coordinator's."""

    def __init__(self, node: Node, now: float) -> None:
        self.node = node
        self.joined_at = now
        self.snapshot: Snapshot | None = None
        self.seen_at: float | None = None
        self.left_at: float | None = None
        self.expected_leave = False
        self.leave_reason = ""
        self.leaving_since: float | None = None
        """Since when it was known that it would go: it is drained, or left as expected."""
        self.probe_asked_at: float | None = None
        self.alive: bool | None = None
        self.offset = 0.0
        """The coordinator's clock minus the node's, transit included: the least seen lately."""
        self._offsets: deque[float] = deque(maxlen=OFFSETS)
        self.clock_set_at = float("-inf")
        """When its wall clock was last set."""

    @property
    def wall_offset(self) -> float:
        """The coordinator's clock minus the wall clock of the node, on which its ranks stamp."""
        return self.offset - (self.snapshot.clock_shift if self.snapshot is not None else 0.0)

    def remember(self) -> NodeMemory:
        """What ``recall`` takes."""
        return NodeMemory(
            node=self.node,
            joined_at=self.joined_at,
            seen_at=self.seen_at,
            leaving_since=self.leaving_since,
            left_at=self.left_at,
            expected_leave=self.expected_leave,
            leave_reason=self.leave_reason,
            offset=self.offset,
        )

    @classmethod
    def recall(cls, memory: NodeMemory) -> NodeView:
        """The node as it was."""
        view = cls(memory.node, memory.joined_at)
        view.seen_at, view.offset = memory.seen_at, memory.offset
        view.leaving_since, view.left_at = memory.leaving_since, memory.left_at
        view.expected_leave, view.leave_reason = memory.expected_leave, memory.leave_reason
        return view

    def take(self, snapshot: Snapshot, now: float) -> None:
        """A snapshot has come at ``now``."""
        self._learn_offset(now - snapshot.time, snapshot)
        if self.snapshot is not None and self.snapshot.clock_shift != snapshot.clock_shift:
            self.clock_set_at = now
        self.node, self.snapshot, self.seen_at = snapshot.node, snapshot, now
        # That it has left is Ray's word: a snapshot may have been under way.
        self.alive = None
        self.probe_asked_at = None

    def _learn_offset(self, offset: float, snapshot: Snapshot) -> None:
        last = self.snapshot
        # Another agent has a clock of its own; so has one whose clock was set back.
        begins = last is None or snapshot.sequence <= last.sequence or snapshot.time < last.time
        if begins:
            self._offsets.clear()
        self._offsets.append(offset)
        least = min(self._offsets)
        if begins or offset < self.offset:
            self.offset = offset
        elif len(self._offsets) == OFFSETS and least > self.offset + CLOCK_JUMP:
            self.offset = least
        else:
            self.offset += CLOCK_DRIFT * (offset - self.offset)

    def join(self) -> None:
        """Ray shows it, maybe again."""
        self.left_at, self.expected_leave, self.leave_reason = None, False, ""
        self.leaving_since = None

    def drain(self, now: float) -> None:
        """Ray says that it will go."""
        if self.leaving_since is None:
            self.leaving_since = now

    def leave(self, now: float, reason: str, *, expected: bool) -> None:
        """Ray shows it as dead."""
        self.left_at, self.leave_reason = now, reason
        # What was announced may end by the machine's going, which Ray calls unexpected.
        self.expected_leave = expected or self.leaving_since is not None
        if self.expected_leave:
            self.drain(now)

    def silence(self, now: float) -> float:
        """Seconds since its last snapshot, or since it joined."""
        return now - (self.seen_at if self.seen_at is not None else self.joined_at)


class ClusterView:
    """All nodes and jobs. Changed only by the engine."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.nodes: dict[str, NodeView] = {}
        self.jobs: dict[tuple[str, int], JobView] = {}
        self._attempts = Attempts()
        self._books: dict[str, PhaseBook] = {}
        self.telemetry = Telemetry()
        self.gpu_levels = GpuLevels()
        self.scalars = Scalars()

    def take(self, snapshot: Snapshot, now: float) -> None:
        """Spread a node's snapshot over the jobs."""
        node = self.nodes.get(snapshot.node.id)
        if node is None:
            node = self.nodes[snapshot.node.id] = NodeView(snapshot.node, now)
        node.take(snapshot, now)
        self.telemetry.take(snapshot, now, node.offset)
        # The moment of the snapshot on our clock, so that a late one does not look like silence.
        at = min(now, snapshot.time + node.offset)
        for rank in map(self._placed, snapshot.ranks):
            self._job(rank.rank.id.job, rank.rank.id.attempt, now).take(
                rank, snapshot.node.id, at, snapshot.time
            )
        for exit_ in map(self._placed_exit, snapshot.exits):
            job = self.jobs.get((exit_.rank.id.job, exit_.rank.id.attempt))
            # What it said last tells when it went; the process of a large job goes long after.
            words = exit_.last_words
            spoken = words.time if words is not None and words.kind != "detach" else exit_.at
            ended = min(now, min(exit_.at, spoken) + node.offset)
            # An agent also finds records of ranks that ended before anybody watched: history.
            if job is not None and (exit_.rank.process in job.ranks or ended >= job.first_seen):
                job.take_exit(exit_, ended)
        for event in snapshot.events:
            pid = event.attributes.get("pid", "") if event.kind == "kernel.oom" else ""
            # What the log held before anybody watched may be of a pid that is another's by now.
            if pid.isdecimal() and now - event.time - node.offset < OOM_SECONDS:
                for job in self.jobs.values():
                    job.note_oom(snapshot.node.id, int(pid))
        present = {rank.rank.process for rank in snapshot.ranks}
        for job in self.jobs.values():
            job.mark_gone(snapshot.node.id, present, at)
        self._join_attempts({rank.rank.id.job for rank in snapshot.ranks})

    def _placed(self, seen: RankSnapshot) -> RankSnapshot:
        rank = self._attempts.place(seen.rank)
        return seen if rank is seen.rank else msgspec.structs.replace(seen, rank=rank)

    def _placed_exit(self, told: Exit) -> Exit:
        rank = self._attempts.place(told.rank)
        return told if rank is told.rank else msgspec.structs.replace(told, rank=rank)

    def _join_attempts(self, names: set[str]) -> None:
        for name in names:
            of_name = [job for (known, _), job in self.jobs.items() if known == name]
            for empty in self._attempts.join(of_name):
                del self.jobs[empty.key]

    def advance(self, now: float) -> None:
        """Derive what follows from time alone; forget jobs and nodes that went long ago."""
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
        self._attempts.forget(self.jobs)
        self._forget_nodes(now)

    def _forget_nodes(self, now: float) -> None:
        """Those not heard of for long: they left, or were released. What jobs that are remembered
        ran on is kept."""
        old = {key for key, node in self.nodes.items() if node.silence(now) > FORGET_SECONDS}
        if not old:
            return
        used = {rank.node for job in self.jobs.values() for rank in job.ranks.values()}
        for node_id in old - used:
            del self.nodes[node_id]
            self.telemetry.forget(node_id)
            self.gpu_levels.forget(node_id)

    def recall(self, phases: Mapping[str, Mapping[str, Iterable[float]]]) -> None:
        """Take over what earlier runs of jobs have shown of their phases: job → phase → seconds."""
        for job, learned in phases.items():
            self._book(job).recall(learned)

    def remember(self, after: int) -> Memory:
        """What ``recall_all`` takes."""
        return Memory(
            after=after,
            phases=self.learned(),
            nodes=tuple(node.remember() for node in self.nodes.values()),
            jobs=tuple(job.remember() for job in self.jobs.values()),
        )

    def recall_all(self, memory: Memory) -> None:
        """Become as the cluster was."""
        self.recall(memory.phases)
        self.nodes = {known.node.id: NodeView.recall(known) for known in memory.nodes}
        for known in memory.jobs:
            job = self._job(known.job, known.attempt, known.first_seen)
            job.recall(known)
            self._attempts.recall(job)

    def learned(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """What is known of every job's phases, in the form that ``recall`` takes."""
        found = {job: book.learned() for job, book in self._books.items()}
        return {job: phases for job, phases in found.items() if phases}

    def host_of(self, node_id: str) -> str:
        """The host label of a node, or its id where it was never seen."""
        view = self.nodes.get(node_id)
        return view.node.host if view else node_id

    def _book(self, job: str) -> PhaseBook:
        """What is known of a job's phases; of too many jobs, those used longest ago go."""
        book = self._books.pop(job, None) or PhaseBook(self.config.hang.phase_budgets)
        self._books[job] = book
        running = {name for name, _ in self.jobs}
        spare = [name for name in self._books if name not in running and name != job]
        for name in spare[: max(0, len(self._books) - MOST_BOOKS)]:
            del self._books[name]
        return book

    def _job(self, job: str, attempt: int, now: float) -> JobView:
        view = self.jobs.get((job, attempt))
        if view is None or self._is_new_generation(view, now):
            fresh = JobView(job, attempt, now, self.config.hang, self._book(job))
            self.jobs[job, attempt] = fresh
            return fresh
        return view

    @staticmethod
    def _is_new_generation(view: JobView, now: float) -> bool:
        # The same job under the same attempt number, started again after all its ranks had gone.
        # Exits of the old one are still being told for a moment, hence the pause.
        return view.ended_at is not None and now - view.ended_at > 10.0 and not view.live

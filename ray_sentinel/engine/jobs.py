"""Jobs as the engine sees them: their ranks, their pace, and how long they have been silent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import msgspec

from ray_sentinel.config import HangConfig
from ray_sentinel.engine.durations import DurationStats
from ray_sentinel.engine.last_hour.lanes import Lanes
from ray_sentinel.engine.last_hour.pulse import Pulse
from ray_sentinel.engine.phases import JOINING, STARTING, TRAINING, PhaseBook, infer, phase_of
from ray_sentinel.engine.ranks import NEVER, RankView
from ray_sentinel.engine.verdicts.exits import SIGKILL
from ray_sentinel.evidence.minority import half
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.progress import Exit, RankSnapshot
from ray_sentinel.model.stacks import StackFact

LEARNING_SECONDS = 4.0
"""Seconds for which a job must have moved with all its ranks before its silence means anything, if
nobody reports steps."""
DOUBT_SECONDS = 60.0
"""Seconds of movement after which it counts as training although no stack could be read: ptrace may
be refused."""
STARTUP_QUIET_SECONDS = 60.0
"""Seconds of silence that are allowed while a job starts up or ends."""
FORGET_SECONDS = 600.0
"""Seconds for which ended jobs and processes are remembered."""
BEGUN_SECONDS = 10.0
"""Seconds after the replacement of all processes from which the ends of the previous ones no longer
count."""
AT_WORK_QUIET = 5.0
"""Seconds for which a job with short steps may be silent and still counts as at work."""
WORD_SECONDS = 3.0
"""Seconds for which a rank whose record is no longer seen stays in the job that the record
named."""
GAP = 0.5
"""Seconds; shorter pauses of a job without steps are not recorded."""


JobKey = tuple[str, int]
"""Identifies a job: its name and attempt."""


class JobExits(msgspec.Struct):
    """How the processes of a job ended, in order, each reported once. Times are Unix seconds on the
    coordinator's clock."""

    since: list[tuple[float, Exit]] = []
    """Exits since the last incident, earliest first."""
    told: dict[ProcessId, float] = {}
    """Processes whose exit was reported, and when they ended, including those before the last
    incident."""

    def __len__(self) -> int:
        return len(self.since)

    def __iter__(self) -> Iterator[tuple[float, Exit]]:
        """(time, exit) of each, the earliest first."""
        return iter(self.since)

    def record(self, exit_: Exit, at: float) -> bool:
        """Record that a process ended at ``at``. Returns False if that is known already."""
        process = exit_.rank.process
        if process in self.told and not self._adds_status(exit_):
            return False
        self.told[process] = at
        self.since = [(when, old) for when, old in self.since if old.rank.process != process]
        self.since.append((at, exit_))
        self.since.sort(key=lambda pair: (pair[0], pair[1].order))
        return True

    def _adds_status(self, exit_: Exit) -> bool:
        """Whether a report of a known exit says more. A second agent on a machine may report a rank
        that is not its own, without a status; the agent that watched it reports how it ended."""
        if exit_.code is None and exit_.signal is None:
            return False
        return any(
            old.rank.process == exit_.rank.process and old.code is None and old.signal is None
            for _, old in self.since
        )

    def killed_for_memory(self, node: str, pid: int) -> list[Exit]:
        """The kernel reports the kill of a process shortly after it ended. Returns the completed
        exit."""
        changed = []
        for index, (at, exit_) in enumerate(self.since):
            where = exit_.rank.node, exit_.rank.process.pid
            if where == (node, pid) and exit_.signal == SIGKILL:
                told = msgspec.structs.replace(exit_, oom_killed=True)
                self.since[index] = (at, told)
                changed.append(told)
        return changed

    def mark_explained(self) -> None:
        """Mark the exits that a closed incident explained, so that they are not raised again."""
        self.since.clear()

    def forget_before(self, edge: float) -> None:
        """Drop exits before ``edge``."""
        self.since = [(at, exit_) for at, exit_ in self.since if at >= edge]

    def forget_replaced(
        self, edge: float, live_ranks: Collection[int], known: Collection[ProcessId]
    ) -> None:
        """Drop exits before ``edge`` whose rank lives again, and those of processes that ended
        before it and are no longer ``known``."""
        self.since = [
            (at, exit_)
            for at, exit_ in self.since
            if at >= edge or exit_.rank.id.rank not in live_ranks
        ]
        self.told = {
            process: at for process, at in self.told.items() if at >= edge or process in known
        }


class JobView(msgspec.Struct, kw_only=True, omit_defaults=True, dict=True):
    """One attempt of one job.

    ``hang``, its settings, and ``book``, which it shares with the job's other attempts, are given
    by ``bind`` and are no part of a snapshot.
    """

    number: int
    """Its own number: another generation under the same attempt has a different one."""
    job: str
    attempt: int
    first_seen: float
    last_moved: float
    ranks: dict[ProcessId, RankView] = {}
    exits: JobExits = msgspec.field(default_factory=JobExits)
    pace: DurationStats = msgspec.field(default_factory=DurationStats)
    """Durations of its steps."""
    gaps: DurationStats = msgspec.field(default_factory=DurationStats)
    """Durations of its pauses, as far as somebody watched."""
    unseen: float = 0.0
    """Seconds since it last moved, up to ``unseen_until``, in which nobody reported its ranks."""
    unseen_until: float = 0.0
    steps_recorded: int = 0
    """The most steps that a living rank has reported."""
    busy_seconds: float = 0.0
    has_trained: bool = False
    """Its stacks were seen elsewhere than in search of ranks: later searches are no start."""
    departed: set[ProcessId] = set()
    """Processes that ended with their node, whose end was announced."""
    complete_since: float | None = None
    ended_at: float | None = None
    disturbed_until: float = 0.0
    """Until then, our own tools may make its ranks work and write."""
    ray_job: str = ""
    """Ray's id (in hex) of the Ray job whose incidents this view is for; it then has no ranks."""
    stirred_at: float = 0.0
    """For such a view, when its Ray job last moved."""
    phases: dict[ProcessId, tuple[str, float]] = {}
    """The phase of each process, and since when."""
    pulse: Pulse = msgspec.field(default_factory=Pulse)
    """The pulse of its steps."""
    lanes: Lanes = msgspec.field(default_factory=Lanes)
    """The lanes of its ranks."""

    def __post_init__(self) -> None:
        self._on_node: dict[str, dict[ProcessId, RankView]] = {}
        self._live: tuple[RankView, ...] | None = None
        self._live_nodes: frozenset[str] | None = None
        self._regroup()

    def bind(self, hang: HangConfig, book: PhaseBook) -> JobView:
        """Set the settings and the known phase durations of the job."""
        self.hang, self.book = hang, book
        return self

    @property
    def key(self) -> JobKey:
        """Identifies it: job and attempt."""
        return self.job, self.attempt

    @property
    def live(self) -> tuple[RankView, ...]:
        """The living ranks."""
        if self._live is None:
            self._live = tuple(view for view in self.ranks.values() if view.alive)
        return self._live

    @property
    def live_nodes(self) -> frozenset[str]:
        """The nodes of living ranks."""
        if self._live_nodes is None:
            self._live_nodes = frozenset(view.node for view in self.live)
        return self._live_nodes

    @property
    def held(self) -> list[RankView]:
        """The living ranks that are in a state of ``RankView.state_since``: nearly always none."""
        return [view for view in self.live if view.state_since]

    def live_on(self, node: str) -> list[RankView]:
        """The living ranks of a node."""
        return [view for view in self._on_node.get(node, {}).values() if view.alive]

    @property
    def world_size(self) -> int | None:
        """The number of ranks that the job should have; None if no rank knows it."""
        # After a restart with other nodes, ranks that ended before had another world size.
        views = self.live or self.ranks.values()
        return max((view.rank.world_size or 0 for view in views), default=0) or None

    @property
    def present(self) -> list[RankView]:
        """Its ranks, living or ended, without processes that others have replaced."""
        live = {view.rank.id.rank for view in self.live}
        size = self.world_size if live else None
        return [
            view
            for view in self.ranks.values()
            if view.alive
            or (view.rank.id.rank not in live and (size is None or view.rank.id.rank < size))
        ]

    @property
    def counts_steps(self) -> bool:
        """Whether any rank reports steps."""
        return any(view.counts_steps for view in self.ranks.values())

    @property
    def step(self) -> int | None:
        """The highest step of the living ranks; None without any."""
        steps = [view.progress.step for view in self.live if view.progress is not None]
        return max((step for step in steps if step is not None), default=None)

    @property
    def by_number(self) -> dict[int, RankView]:
        """World rank → its process; if a number occurs twice, the live process that was seen
        last."""
        found: dict[int, RankView] = {}
        for view in self.ranks.values():
            old = found.get(view.rank.id.rank)
            if old is None or (view.alive, view.seen_at) > (old.alive, old.seen_at):
                found[view.rank.id.rank] = view
        return found

    def apply(self, snapshot: RankSnapshot, node: str, at: float, node_time: float) -> None:
        """Apply a rank's newest snapshot."""
        process = snapshot.rank.process
        view = self.ranks.get(process)
        if view is None:
            view = RankView.found(snapshot, node, at, node_time)
            self.ranks[process] = self._on_node.setdefault(node, {})[process] = view
            self._count_anew()
        else:
            disturbed, gone = at < self.disturbed_until, not view.alive
            ended = view.update(snapshot, at, node_time, disturbed=disturbed)
            if gone:
                self._count_anew()
            self._learn(ended, view.steps_recorded, at)
        self._note_phase(process, view, at)

    def _learn(self, ended: list[float], recorded: int, at: float) -> None:
        """Learn the duration of a step. It ends once for the job, though each of its ranks reports
        it: the first report counts."""
        new = recorded - self.steps_recorded
        if new > 0:
            self.steps_recorded = recorded
            for seconds in ended[-new:]:
                self.pace.add(seconds)
                self.pulse.add("", seconds, at)

    def record_exit(self, exit_: Exit, at: float) -> None:
        """Record that a rank's process ended at ``at``, on the coordinator's clock."""
        if (
            self.exits.record(exit_, at)
            and (view := self.ranks.get(exit_.rank.process)) is not None
        ):
            view.exit, view.exited_at = exit_, at
            self._count_anew()

    def adopt(self, other: JobView) -> None:
        """Take over the living ranks of another attempt, which turned out to be this one."""
        for view in other.live:
            process = view.rank.process
            identity = msgspec.structs.replace(view.rank.id, attempt=self.attempt)
            view.rank = msgspec.structs.replace(view.rank, id=identity)
            self.ranks[process] = other.ranks.pop(process)
            other.phases.pop(process, None)
        self._regroup()
        other._regroup()

    def note_oom(self, node: str, pid: int) -> None:
        """The kernel reports, just after an exit, that it killed the process to free memory."""
        for exit_ in self.exits.killed_for_memory(node, pid):
            if (view := self.ranks.get(exit_.rank.process)) is not None:
                view.exit = exit_

    def advance(self, now: float) -> None:
        """Update derived state: gaps, completeness, the end."""
        moved = self.moved_at()
        if moved > self.last_moved:
            gap = moved - self.last_moved
            # A pause while a job starts up says nothing about pauses in its training, nor does time
            # in which it may have moved and nobody would have seen it.
            if (seen := gap - self.unseen) > GAP and not self.counts_steps and self.training():
                self.gaps.add(seen)
            if self.complete_since is not None and gap < self.hang.silence_seconds:
                self.busy_seconds += gap
            self.last_moved, self.unseen = moved, 0.0
        if self._works() and self._has_looks() and not self.joins():
            self.has_trained = True
        live = self.live
        self.steps_recorded = max((view.steps_recorded for view in live), default=0)
        if self.complete_since is None and live and len(live) >= (self.world_size or 1):
            self.complete_since = now
        if live:
            doing = "step" if self.training() else "startup"
            self.lanes.record(live, self.pace.usual or 0.0, doing, now)
            self.ended_at = None
            self._drop_old_exits(now)
        elif self.ranks and self.ended_at is None:
            self.ended_at = now

    def _drop_old_exits(self, now: float) -> None:
        """Drop exits from before all processes were replaced under one attempt: no launcher counts
        a change of membership, and no supervisor counts its launcher's restarts."""
        begun = min(view.first_seen for view in self.live) if self.exits else now
        if now - begun > BEGUN_SECONDS:
            self.exits.forget_before(begun)

    def miss(self, since: float, until: float) -> None:
        """Nobody reported its ranks, or some of them, between these times: the coordinator was
        away, or an agent."""
        since = max(since, self.last_moved, self.unseen_until)
        if until > since:
            self.unseen += until - since
            self.unseen_until = until

    def follow(self, moved_at: float, ended_at: float | None) -> None:
        """For a job without ranks: record when its Ray job last moved and when it ended."""
        self.stirred_at, self.ended_at = moved_at, ended_at

    def moved_at(self) -> float:
        """When the job last moved; for an ended job, its last movement.

        Progress of any rank is enough. A main thread that is working says little while all others
        stand still (it may spin), so work counts only if half of the ranks do it. Ranks that wait
        for others to join look for them all the time, and make no progress.
        """
        views = self.live or list(self.ranks.values())
        if not views:
            return max(self.first_seen, self.stirred_at)
        advanced = max([view.advanced_at for view in views])
        return advanced if self.joins() else max(self.most_moved_at(), advanced)

    def most_moved_at(self) -> float:
        """When half of its ranks had last shown a sign of life."""
        signs = sorted([view.moved_at for view in self.live or self.ranks.values()], reverse=True)
        return signs[len(signs) // 2] if signs else self.first_seen

    def paused(self, now: float) -> bool:
        """Whether every process is stopped: then somebody paused the job, and it does not hang."""
        return all(rank.held("stopped", now) or rank.held("traced", now) for rank in self.live)

    def works_apart(self) -> bool:
        """Whether a rank shows activity that does not count as movement of the job."""
        moved = self.moved_at()
        return any(
            view.spinning or view.restless or view.moved_at > moved + GAP for view in self.live
        )

    def silence(self, now: float) -> float:
        """Seconds since anything in the job moved."""
        return max(0.0, now - self.moved_at())

    def protected_phase(self, now: float) -> str:
        """A phase other than training whose budget has not run out; "" if there is none.

        One rank's declared phase protects all: the others wait for its checkpoint at a barrier.
        """
        for view in self.live:
            progress = view.progress
            if progress is None or progress.phase in TRAINING or progress.phase_since is None:
                continue
            spent = view.node_time - progress.phase_since + (now - view.seen_at)
            if spent < self.book.budget(progress.phase):
                return progress.phase
        seen = "" if self.training() else self.seen_phase()
        if seen == JOINING and self._one_does_not_start():
            return ""
        return seen if seen and self.silence(now) < self.book.budget(seen) else ""

    def seen_phase(self) -> str:
        """A start-up phase that nobody declared, but that most ranks' stacks show."""
        looks = self._fresh_looks()
        if len(looks) <= half(len(self.live)) or self.declares_phases():
            return ""
        phase = infer(looks)
        return phase if phase in STARTING else ""

    def _fresh_looks(self) -> list[StackFact]:
        """The last stack of each rank that has made no progress since."""
        return [
            view.looks[-1]
            for view in self.live
            if view.looks and view.looks[-1].at >= view.advanced_at
        ]

    def _one_does_not_start(self) -> bool:
        """Whether a rank stands still at a place that is not part of start-up, while others wait
        for it to join."""
        return any(
            not look.waits_for_others and phase_of(look) not in STARTING
            for look in self._fresh_looks()
        )

    def declares_phases(self) -> bool:
        """Whether any rank declares its phase."""
        return any(view.phase for view in self.live)

    def training(self) -> bool:
        """Whether the job has been seen training: a step was counted, or it moved for a while with
        all ranks present and not waiting for others to join."""
        if len(self.pace) > 0:
            return True
        return self._works() and not self.joins()

    def at_work(self, now: float) -> bool:
        """Whether the job trains, makes progress and is in no other phase, so that the levels of
        its devices are meaningful."""
        if not self.live or not self.training() or self.protected_phase(now):
            return False
        return self.silence(now) <= max(AT_WORK_QUIET, 2.0 * (self.pace.usual or 0.0))

    def joins(self) -> bool:
        """Whether most of its ranks were seen waiting for others to join, without progress
        since."""
        return not self._started() and self.seen_phase() == JOINING

    def _started(self) -> bool:
        return self.has_trained or len(self.pace) > 0

    def may_join(self) -> bool:
        """Whether the job seems to train but may also be waiting for ranks to join; only stacks can
        tell."""
        if self.joins():
            return self._works()
        doubtful = LEARNING_SECONDS <= self.busy_seconds < DOUBT_SECONDS
        return doubtful and not self._has_looks()

    def missing_ranks(self) -> list[int]:
        """The ranks of its world that are missing."""
        return sorted(set(range(self.world_size or 0)) - {view.rank.id.rank for view in self.live})

    def _works(self) -> bool:
        return self.busy_seconds >= LEARNING_SECONDS

    def _has_looks(self) -> bool:
        return any(view.looks for view in self.live)

    def timeout(self) -> float:
        """Seconds of silence after which the job is suspected."""
        if not self.training() or self.ending():
            return STARTUP_QUIET_SECONDS
        pace = self.pace if len(self.pace) else self.gaps
        return pace.timeout(self.hang.silence_seconds, self.hang.silence_factor)

    def ending(self) -> bool:
        """Whether most of its ranks have ended without an error, so that the rest is cleaning
        up."""
        if len(self.live) == len(self.ranks):
            return False  # each tick asks this for thousands of ranks
        if not any(view.left_in_peace for view in self.ranks.values()):
            return False
        # A rank that another process has taken over has not left.
        present = self.present
        left = {view.rank.id.rank for view in present if view.left_in_peace}
        return len(left) > half(len({view.rank.id.rank for view in present}))

    def short_timeout(self, least: float) -> float:
        """A shorter ``timeout`` (s) for evidence that is hard but may be momentary."""
        pace = self.pace if len(self.pace) else self.gaps
        return pace.timeout(least, 2.0) if self.training() else STARTUP_QUIET_SECONDS

    def phase(self) -> str:
        """The phase of most ranks; without a declared one, training or start-up."""
        named = [view.phase for view in self.live if view.phase]
        if named:
            return max(set(named), key=named.count)
        return "train" if self.training() else self.seen_phase() or "startup"

    def exits_and_dying(self) -> list[tuple[float, Exit]]:
        """Exits since the last incident, and those that will follow within seconds."""
        told = {exit_.rank.process for _, exit_ in self.exits}
        # Hardly any rank has last words: the others are skipped.
        spoke = [
            view
            for view in self.live
            if (progress := view.snapshot.progress) is not None and progress.last_words is not None
        ]
        dying = [view.dying() for view in spoke if view.rank.process not in told]
        known = [*self.exits, *(end for end in dying if end is not None)]
        return sorted(known, key=lambda pair: (pair[0], pair[1].order))

    def mark_gone(self, node: str, present: Collection[ProcessId], at: float) -> None:
        """Mark ranks of ``node`` that its newest snapshot lacks as gone, though no exit was
        reported."""
        for process, view in self._on_node.get(node, {}).items():
            if view.alive and process not in present:
                view.gone_at = at
                self._count_anew()

    def drop_moved_ranks(
        self,
        node: str,
        homes: Mapping[ProcessId, Collection[JobKey]],
        guessed: Mapping[ProcessId, float],
        at: float,
    ) -> bool:
        """Drop ranks of ``node`` that ``homes`` shows only in other jobs. What a process's
        variables say is a guess until it attaches. It overrides what a process itself reported,
        whose record may be unreadable for a moment, only after a while; ``guessed`` is since when
        the guess has been made. Returns whether there were any."""
        key = self.key
        moved = [
            view
            for process, view in self._on_node.get(node, {}).items()
            if view.alive
            and process in homes
            and key not in homes[process]
            and (not view.attached or at - guessed.get(process, NEVER) > WORD_SECONDS)
        ]
        for view in moved:
            if view.attached:  # it was this job's, and has left it
                view.gone_at = at
            else:
                del self.ranks[view.rank.process], self._on_node[node][view.rank.process]
                self.phases.pop(view.rank.process, None)
        if moved:
            self._count_anew()
        return bool(moved)

    def lose(self, left: Mapping[str, float]) -> None:
        """Mark ranks on nodes that have left, and when, as gone: no exit will be reported for
        them."""
        for node in self.live_nodes & left.keys():
            for view in self._on_node[node].values():
                if view.alive:
                    view.gone_at, view.lost = left[node], True
            self._count_anew()

    def forget_replaced(self, now: float) -> None:
        """Drop processes that ended long ago and whose rank another process now has."""
        if len(self.live) == len(self.ranks) and not self.exits.told and not len(self.exits):
            return
        edge = now - FORGET_SECONDS
        live = {view.rank.id.rank for view in self.live}
        for process, view in list(self.ranks.items()) if len(self.live) < len(self.ranks) else ():
            if view.ended_at is not None and view.ended_at < edge and view.rank.id.rank in live:
                del self.ranks[process], self._on_node[view.node][process]
                self.phases.pop(process, None)
        self.exits.forget_replaced(edge, live, self.ranks)

    def _regroup(self) -> None:
        """Recompute which ranks are on which node."""
        self._on_node.clear()
        for process, view in self.ranks.items():
            self._on_node.setdefault(view.node, {})[process] = view
        self._count_anew()

    def _count_anew(self) -> None:
        """Forget the derived counts, because a rank has come, has ended, or turned out to live."""
        self._live = self._live_nodes = None

    def _note_phase(self, process: ProcessId, view: RankView, at: float) -> None:
        old = self.phases.get(process)
        if old is not None and old[0] == view.phase:
            return
        if old is not None and old[0] not in TRAINING:
            self.book.record(old[0], process, old[1], at)
            self.pulse.note_phase(old[0], old[1], at)
        # It may have begun long before anybody looked.
        since = view.progress.phase_since if view.progress is not None else None
        lasted = max(0.0, view.node_time - since) if since is not None else 0.0
        self.phases[process] = (view.phase, at - lasted)

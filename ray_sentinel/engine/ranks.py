"""One rank as the engine knows it: its last snapshot, when it moved, and whether it is stuck."""

from __future__ import annotations

import statistics

import msgspec

from ray_sentinel.engine.verdicts.exits import is_abnormal
from ray_sentinel.evidence.movement import last_before
from ray_sentinel.evidence.stacks import movement
from ray_sentinel.evidence.stacks.compare import function_of, shared_depth
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.progress import HELD, Exit, ProcessState, Progress, RankSnapshot
from ray_sentinel.model.stacks import StackFact

IDLE_SWITCHES_PER_SECOND = 3.0
"""Wake-ups per second up to which a thread counts as idle: one that waits with a timeout wakes up a
few times a second and does nothing."""
TIMED_WAKES_PER_SECOND = 8.0
TIMED_WAKE_SECONDS = 150e-6
"""CPU seconds of one wake-up up to which rare wake-ups still count as such a wait: JAX looks five
times a second for signals while it waits for arrays, in 30 to 80 microseconds."""
IDLE_CPU_SHARE = 0.02
SPIN_CPU_SHARE = 0.85
"""Share of a CPU above which a main thread counts as spinning. It may be computing or polling: the
share says nothing by itself."""
MORE_THAN_USUAL = 1.5
"""Multiple of the CPU that a main thread takes while the job makes progress. Below IDLE_CPU_SHARE,
this alone tells work in small turns from a loop that looks, sleeps and looks again."""
WORK_SECONDS_PER_SWITCH = 500e-6
"""CPU seconds between two waits from which a thread is working, however seldom a crowded machine
lets it run. Checking whether something has come, or trying to connect, takes a Python loop 100 to
300 microseconds."""
USUAL_LOOKS = 20
"""Number of the last looks from which a main thread's usual share of CPU is taken."""
NEVER = float("-inf")
"""The time of an event that has not happened."""
WORK_LASTS = 4.0
"""Seconds for which observed work counts, because single looks scatter."""
MOST_LOOKS = 12
"""Most looks at its stacks that are kept."""
ALWAYS_RUNNING = 3
"""How many successive looks must find the main thread runnable and hardly ever asleep in between.
"""
SECONDS_PER_TURN = 0.04
"""Least CPU seconds between two sleeps of a thread that never rests. On a crowded machine, a thread
that works in small turns is found waiting for a CPU at every look, but goes to sleep after each
turn. A loop of Python sleeps only while it hands its lock to threads that want it: a companion's
wake-ups, twice a second on an idle machine and more rarely on a crowded one, leave it 100 to 250 ms
in between."""
IO_BYTES_PER_SECOND = 65_536.0
"""Bytes per second above which reads and writes are work: a model load, a checkpoint, a data set.
PyTorch's store, polled every 10 ms by a rank that waits for the others to join, moves 5 kB/s."""
_WITHOUT_GIL = ("gil-held", "starved")


class RankView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One rank. ``update`` and ``apply_stack`` change it; ``JobView`` sets ``rank``, ``exit``,
    ``exited_at``, ``gone_at`` and ``lost``. Times are on the coordinator's clock."""

    rank: Rank
    """The rank, under the attempt to which it belongs."""
    snapshot: RankSnapshot
    """The last snapshot."""
    node: str
    node_time: float
    """When the snapshot was made, on the node's clock."""
    first_seen: float
    seen_at: float
    moved_at: float
    """The last sign of life; CPU time of its main thread is enough."""
    advanced_at: float
    """The last sign of progress: a step, a phase, another place in the code, data moved."""
    data_at: float
    """When it last read or wrote a considerable amount by itself."""
    exit: Exit | None = None
    exited_at: float | None = None
    gone_at: float | None = None
    lost: bool = False
    """Whether it was lost with its node, so that its end is unknown."""
    spinning: bool = False
    working: bool = False
    """Whether its main thread computes and waits in between. No hang does that, and no loop that
    never leaves the CPU, however crowded the machine is."""
    traced_until: float = 0.0
    """Until then a debugger may hold it, for seconds: one that polls without rest seems to work in
    turns meanwhile."""
    running_looks: int = 0
    """Successive looks that found the main thread runnable and hardly ever asleep."""
    worked_at: float = NEVER
    """When it was last seen to compute."""
    shares: list[float] = []
    """Recent CPU shares of its main thread while the job made progress."""
    idle: bool = False
    """Whether all of its threads are idle."""
    state_since: dict[str, float] = {}
    """Since when it has been stopped, starved, ..."""
    looped_at: float = NEVER
    """When it was last seen at another line of the function that it had been in, or, by a debugger,
    in the interpreter's own loop."""
    looks: list[StackFact] = []
    """Its last stacks, oldest first; ``at`` is on the coordinator's clock."""

    @classmethod
    def found(cls, snapshot: RankSnapshot, node: str, at: float, node_time: float) -> RankView:
        """The view of a rank from its first snapshot."""
        view = cls(
            rank=snapshot.rank,
            snapshot=snapshot,
            node=node,
            node_time=node_time,
            first_seen=at,
            seen_at=at,
            moved_at=at,
            advanced_at=at,
            data_at=at,
        )
        if (progress := snapshot.progress) is not None and (age := view._age(progress)) is not None:
            view.moved_at = view.advanced_at = at - age
        return view

    @property
    def alive(self) -> bool:
        """Whether its process lives, as far as was reported."""
        return self.exit is None and self.gone_at is None

    @property
    def ended_at(self) -> float | None:
        """When it ended, as far as was reported; None while it lives."""
        return self.exited_at if self.exited_at is not None else self.gone_at

    @property
    def attached(self) -> bool:
        """Whether it has a record of its own progress, with steps or without."""
        return self.snapshot.progress is not None

    @property
    def steps_recorded(self) -> int:
        """How many steps it has reported since it attached."""
        progress = self.snapshot.progress
        return progress.steps_recorded if progress is not None else 0

    @property
    def counts_steps(self) -> bool:
        """Whether it has reported steps."""
        return self.steps_recorded > 0

    def dying(self) -> tuple[float, Exit] | None:
        """Its last words as an exit, and their time, while its process still exists.

        A large process on a busy node takes seconds to go. A rank that has made progress since is
        not dying, whatever it said.
        """
        words = self.progress.last_words if self.progress else None
        if not self.alive or words is None or words.kind == "detach":
            return None
        at = self.seen_at - (self.node_time - words.time)
        if self.counts_steps and self.advanced_at > at + 0.1:
            return None
        return at, Exit(rank=self.rank, at=words.time, order=0, last_words=words, was_attached=True)

    @property
    def left_in_peace(self) -> bool:
        """Whether it ended without any sign of an error."""
        if self.exit is not None:
            return not is_abnormal(self.exit)
        return not self.alive and not self.lost

    @property
    def restless(self) -> bool:
        """Whether its main thread has not slept during the last few looks, running or runnable: it
        may compute or poll, and only its stacks can tell."""
        return self.running_looks >= ALWAYS_RUNNING

    @property
    def unfed(self) -> bool:
        """Whether it is runnable but gets no CPU: throttled by its control group, or displaced by
        other processes."""
        return self.idle and self.process.state == "R"

    @property
    def process(self) -> ProcessState:
        """Its process in the last snapshot."""
        return self.snapshot.process

    @property
    def progress(self) -> Progress | None:
        """What it reported about itself; None if it is not attached."""
        return self.snapshot.progress

    @property
    def phase(self) -> str:
        """Its declared phase; empty if it is not attached."""
        return self.snapshot.progress.phase if self.snapshot.progress else ""

    def update(
        self, snapshot: RankSnapshot, at: float, node_time: float, *, disturbed: bool = False
    ) -> list[float]:
        """Apply a newer snapshot. Returns the durations (s) of the steps that ended since.

        ``disturbed``: our own tools are working on it, so that its activity is no sign of progress.
        """
        before, self.snapshot = self.snapshot, snapshot
        elapsed, passed = node_time - self.node_time, at - self.seen_at
        if not 0 < elapsed <= passed + 1.0:  # another agent, or one whose clock was set
            elapsed = max(passed, 1e-3)
        self.rank = snapshot.rank
        self.seen_at, self.node_time = at, node_time
        self.gone_at, self.lost = None, False
        ended = self._new_steps(before.progress, snapshot.progress)
        self._note_states(at)
        process, last = snapshot.process, before.process
        share = (process.main_cpu_seconds - last.main_cpu_seconds) / elapsed
        switches = (process.main_switches - last.main_switches) / elapsed
        self.spinning = share > SPIN_CPU_SHARE
        self.running_looks = self.running_looks + 1 if _never_rests(process, last) else 0
        if self._computes(share, switches) and not self.spinning and at >= self.traced_until:
            self.worked_at = at
        self.working = at - self.worked_at < WORK_LASTS and not self.restless
        used = process.cpu_seconds - last.cpu_seconds
        self.idle = used / elapsed < IDLE_CPU_SHARE
        moved = (process.io_bytes - last.io_bytes) / elapsed
        moves_data = not disturbed and moved > IO_BYTES_PER_SECOND
        if moves_data:
            self.data_at = at
        if moves_data or ended:
            self.shares.append(share)
            del self.shares[:-USUAL_LOOKS]
        if self.counts_steps:
            age = self._age(snapshot.progress) if snapshot.progress else None
            if age is not None:
                self._advanced(at - age)
        elif moves_data:
            self._advanced(at)
        elif not disturbed and self._worked(share, switches):
            self.moved_at = at
        return ended

    def _advanced(self, at: float) -> None:
        self.advanced_at = max(self.advanced_at, at)
        self.moved_at = max(self.moved_at, at)

    def apply_stack(
        self, fact: StackFact, job_moved: float, most_moved: float | None = None
    ) -> None:
        """Apply newer stacks. Where nobody counts steps, another place in the code is movement.

        ``job_moved``: when the job last moved; a different place in a look before that is no
        movement. ``most_moved``: when most of its ranks last did, if not then too: a rank that only
        returns to places where it has been since (asks again, waits, asks again) makes no progress.
        """
        last = self.looks[-1] if self.looks else None
        if fact.error or (last is not None and fact.at < last.at):
            return  # a late look shows no movement if a later one came before it
        loops = last is not None and _same_function(last, fact)
        if loops:
            self.looped_at = fact.at
        news = last is not None and last.at >= job_moved and last.signature != fact.signature
        since = job_moved if most_moved is None else most_moved
        known = any(old.at >= since and old.signature == fact.signature for old in self.looks)
        if news and (loops or (known and self.idle)) and not self.counts_steps:
            # One rank that goes round in a loop is no progress for the others.
            self.moved_at = max(self.moved_at, fact.at)
        elif news and not self.counts_steps:
            self._advanced(fact.at)
        self.looks.append(fact)
        del self.looks[:-MOST_LOOKS]

    def held(self, state: str, now: float) -> float:
        """Seconds for which it has been in ``state``; 0 if it is not."""
        since = self.state_since.get(state)
        return 0.0 if since is None else max(0.0, now - since)

    def _age(self, progress: Progress) -> float | None:
        ended = progress.step_ended_at
        begun = progress.phase_since
        moments = [moment for moment in (ended, begun, progress.attached_at) if moment is not None]
        return max(0.0, self.node_time - max(moments)) if moments else None

    @staticmethod
    def _new_steps(before: Progress | None, after: Progress | None) -> list[float]:
        if after is None:
            return []
        new = after.steps_recorded - (before.steps_recorded if before else 0)
        return list(after.recent_step_seconds[-new:]) if new > 0 else []

    def _computes(self, share: float, switches: float) -> bool:
        if share > IDLE_CPU_SHARE:
            return True
        if switches <= IDLE_SWITCHES_PER_SECOND:
            return False
        if share / switches > WORK_SECONDS_PER_SWITCH:
            return True
        return bool(self.shares) and share > MORE_THAN_USUAL * statistics.median(self.shares)

    def _worked(self, share: float, switches: float) -> bool:
        if self.spinning or self.restless:
            return False
        if share > IDLE_CPU_SHARE:
            return True
        seldom = switches <= TIMED_WAKES_PER_SECOND and share <= switches * TIMED_WAKE_SECONDS
        return switches > IDLE_SWITCHES_PER_SECOND and not seldom

    def _note_states(self, at: float) -> None:
        process = self.process
        held = process.frozen or process.state in HELD or process.interpreter in _WITHOUT_GIL
        if not held and not self.state_since:
            return  # as nearly all are, each second
        now = {
            "stopped": process.state == "T" or process.frozen,
            "gil-held": process.interpreter == "gil-held",
            "starved": process.interpreter == "starved",
            # Version 1 of control groups freezes in state D.
            "blocked": process.state == "D" and not process.frozen,
            "traced": process.state == "t",
        }
        for state, holds in now.items():
            if not holds:
                self.state_since.pop(state, None)
            else:
                self.state_since.setdefault(state, at)


def _never_rests(process: ProcessState, last: ProcessState) -> bool:
    sleeps = process.main_sleeps - last.main_sleeps
    used = process.main_cpu_seconds - last.main_cpu_seconds
    return process.state == "R" and used >= sleeps * SECONDS_PER_TURN


def _same_function(one: StackFact, other: StackFact) -> bool:
    """Whether two looks show different lines of one function that was called in the same way. One
    call deeper, which is ``in-place`` to a case, is progress where nobody counts steps."""
    mine, others = one.signature, other.signature
    innermost = len(mine) == len(others) == shared_depth(mine, others) + 1
    return innermost and function_of(mine[-1]) == function_of(others[-1])


def is_stuck(view: RankView, moved: float, seconds: float) -> bool:
    """Whether its looks since ``moved``, spanning at least ``seconds``, show it at no new place.

    One that computes and waits in turn is at work. One that hardly runs at all may go round: a loop
    that asks for something again and again makes no progress.
    """
    looks = [look for look in view.looks if look.at >= moved]
    if view.working or not looks:
        return False
    begun = last_before([look.at for look in looks], seconds)
    if begun is None:
        return False
    if movement(looks[begun:]) == "stuck":
        return True
    known = {look.signature for look in looks[:-2]}
    return view.idle and all(look.signature in known for look in looks[-2:])

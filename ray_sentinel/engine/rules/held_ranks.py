"""Rules that prove of a rank that it cannot run: stopped, blocked, or without its GIL."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.activities import LONG_ACTIVITIES
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.rule import ProofRule, thresholds
from ray_sentinel.evidence.minority import half
from ray_sentinel.model.incident import Finding
from ray_sentinel.model.stacks import StackFact


class RankStopped(ProofRule):
    """A signal has stopped a rank, or its cgroup is frozen, while its peers run.

    Hard evidence, except where the whole job is stopped: then somebody paused it.

    Thresholds: ``seconds`` that a rank must have been stopped.
    """

    name = "rank.stopped"
    kind = "rank-stopped"
    proves = "stopped"
    weight = 8.0
    settled = False
    Thresholds = thresholds(seconds=1.0)

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            stopped = [rank for rank in job.held if rank.held("stopped", now)]
            long = [
                rank for rank in stopped if rank.held("stopped", now) >= self.thresholds.seconds
            ]
            if long and len(stopped) < len(job.live):
                yield self.proven(job, [(rank, _describe(rank, now)) for rank in stopped])


def _describe(rank: RankView, now: float) -> str:
    frozen = rank.process.frozen
    stopped = "its process has been stopped by a signal (as kill -STOP sends)"
    what = "its cgroup has been frozen" if frozen else stopped
    return f"{what} for {rank.held('stopped', now):.1f} s"


class RankBlocked(ProofRule):
    """A rank's main thread sits in uninterruptible sleep (state D) and does not move.

    Hard evidence: an uninterruptible sleep of many seconds is not normal disk latency.

    Thresholds: ``seconds`` in state D without a break, and least silence of the job.
    """

    name = "rank.blocked"
    kind = "kernel-blocked"
    proves = "is blocked in the kernel (state D)"
    Thresholds = thresholds(seconds=2.0, silence_seconds=2.5)

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            blocked = [
                rank
                for rank in job.held
                if rank.held("blocked", now) >= self.thresholds.seconds
                and now - rank.moved_at >= self.thresholds.seconds
            ]
            if not blocked or job.silence(now) < job.short_timeout(self.thresholds.silence_seconds):
                continue
            # If most of them are blocked, a file system has gone: that is no rank's fault.
            if job.protected_phase(now) or len(blocked) > half(max(2, len(job.live))):
                continue
            told = [
                (
                    rank,
                    f"in state D for {rank.held('blocked', now):.1f} s, in "
                    f"{rank.process.wchan or '?'}",
                )
                for rank in blocked
            ]
            yield self.proven(job, told)


class RankGilHeld(ProofRule):
    """A rank's interpreter cannot run, because C code keeps the GIL.

    Hard evidence if the companion thread's stamp is old and that thread waits for the GIL.

    Thresholds: ``silence_seconds``: least silence of the job; a moment's hold is everyday.
    """

    name = "rank.gil-held"
    kind = "gil-held"
    proves = "holds its GIL in C, no Python code can run there"
    Thresholds = thresholds(silence_seconds=2.5)

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            holders = [rank for rank in job.held if rank.held("gil-held", now)]
            if not holders or len(holders) > half(len(job.live)) or job.protected_phase(now):
                continue
            silence = job.silence(now)
            if silence < job.short_timeout(self.thresholds.silence_seconds):
                continue
            told = [
                (
                    rank,
                    "the companion thread waits for the GIL; the main thread is "
                    f"{'burning CPU' if rank.spinning else 'asleep in a call'}; the job is silent "
                    f"for {silence:.1f} s",
                )
                for rank in holders
            ]
            yield self.proven(job, told)


LOOP_LASTS = 30.0
"""Seconds for which two lines of one function tell a loop in Python, which gives the GIL away when
asked, from C code, which does not."""


class RankGilSeen(ProofRule):
    """Stacks taken from outside show one rank holding its GIL in one place.

    For ranks without a companion thread: hard evidence once two looks agree.

    Thresholds: ``seconds`` between two equal looks, and the least silence of the job; on a CPU, as
    many equal stacks as ``running_looks`` are needed, while two are enough asleep.
    """

    name = "rank.gil-seen"
    kind = "gil-held"
    proves = "holds its GIL in one place"
    source = "stacks"
    Thresholds = thresholds(seconds=0.9, silence_seconds=2.0, running_looks=9)

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            if not job.training() or job.silence(now) < job.short_timeout(
                self.thresholds.silence_seconds
            ):
                continue
            moved = job.moved_at()
            holders = [rank for rank in job.live if self._holds(rank, moved, now)]
            if 0 < len(holders) <= half(len(job.live)):
                yield self.proven(job, [(rank, _seen(rank, moved)) for rank in holders])

    def _holds(self, rank: RankView, moved: float, now: float) -> bool:
        # A stopped rank keeps the GIL that it had; its fault is that it is stopped.
        if rank.process.interpreter in ("runs", "starved") or "stopped" in rank.state_since:
            return False
        looks = _held_looks(rank, moved)
        if not looks or looks[-1].at - looks[0].at < self.thresholds.seconds:
            return False
        # A loop in Python goes from line to line, and is back in time for a second look or two.
        asleep = any(look.keeps_gil or look.active is False for look in looks)
        if not asleep and (rank.unfed or now - rank.looped_at < LOOP_LASTS):
            return False
        return asleep or len(looks) >= self.thresholds.running_looks


def _held_looks(rank: RankView, moved: float) -> list[StackFact]:
    """The last looks at which it held the GIL in one place. Those before its last progress, or
    before the job ``moved``, do not count: a call in every step keeps it in the same place for a
    moment."""
    found: list[StackFact] = []
    for look in reversed(rank.looks):
        here = not found or look.signature == found[-1].signature
        holds = look.holds_gil and look.activity not in LONG_ACTIVITIES
        if not holds or not here or look.at < max(rank.advanced_at, moved):
            break
        found.append(look)
    return found[::-1]


def _seen(rank: RankView, moved: float) -> str:
    looks = _held_looks(rank, moved)
    first, last = looks[0], looks[-1]
    place = last.signature[-1] if last.signature else "?"
    return f"holds the GIL at {place} at every look over {last.at - first.at:.1f} s"

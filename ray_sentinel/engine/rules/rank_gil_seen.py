"""rank.gil-seen: stacks taken from outside show one rank holding its GIL in one place."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.activities import LONG_ACTIVITIES
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.rule import Proof, Rule, Thresholds, of_ranks
from ray_sentinel.evidence.minority import half
from ray_sentinel.model.incident import Finding
from ray_sentinel.model.stacks import StackFact

PROOF = Proof(
    rule="rank.gil-seen", kind="gil-held", what="holds its GIL in one place", source="stacks"
)

LOOP_LASTS = 30.0
"""Seconds for which two lines of one function tell a loop in Python, which gives the GIL away when
asked, from C code, which does not."""


class RankGilSeenThresholds(Thresholds, frozen=True, kw_only=True):
    """``seconds`` between two equal looks, and the least silence of the job."""

    seconds: float = 0.9
    silence_seconds: float = 2.0
    running_looks: int = 9
    """Equal stacks that are needed while the rank is on a CPU; asleep, two are enough."""


class RankGilSeen(Rule):
    """For ranks without a companion thread: hard evidence once two looks agree."""

    name = PROOF.rule
    Thresholds = RankGilSeenThresholds

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.jobs.values():
            if not job.training() or job.silence(now) < job.short_timeout(
                self.thresholds.silence_seconds
            ):
                continue
            moved = job.moved_at()
            holders = [rank for rank in job.live if self._holds(rank, moved, now)]
            if 0 < len(holders) <= half(len(job.live)):
                yield of_ranks(PROOF, job, [(rank, _seen(rank, moved)) for rank in holders])

    def _holds(self, rank: RankView, moved: float, now: float) -> bool:
        # A stopped rank keeps the GIL that it had; its fault is that it is stopped.
        if rank.process.interpreter in ("runs", "starved") or "stopped" in rank.state_since:
            return False
        looks = _held(rank, moved)
        if not looks or looks[-1].at - looks[0].at < self.thresholds.seconds:
            return False
        # A loop in Python goes from line to line, and is back in time for a second look or two.
        asleep = any(look.keeps_gil or look.active is False for look in looks)
        if not asleep and (rank.unfed or now - rank.looped_at < LOOP_LASTS):
            return False
        return asleep or len(looks) >= self.thresholds.running_looks


def _held(rank: RankView, moved: float) -> list[StackFact]:
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
    looks = _held(rank, moved)
    first, last = looks[0], looks[-1]
    place = last.signature[-1] if last.signature else "?"
    return f"holds the GIL at {place} at every look over {last.at - first.at:.1f} s"

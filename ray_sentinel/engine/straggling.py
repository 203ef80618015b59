"""The search for stragglers in running jobs, and its recent results.

A look costs each rank a dump of its flight recorder (some 10 ms in a thread of its own), so it is
rare, only while the job trains without a case, and rarer still where there are no recorders.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from ray_sentinel.config import StragglersConfig
from ray_sentinel.engine.actions import AskArrivals
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.events import StragglersFound
from ray_sentinel.engine.jobs import JobKey, JobView
from ray_sentinel.model.straggler import StragglerFacts, StragglerStatus

LEAST_RANKS = 3
"""Fewest ranks: of two it is impossible to tell which one is slow."""
LEAST_STEPS = 20
"""Steps that show what is usual before recorders are requested."""
BARREN_FACTOR = 10
"""How many times more rarely a job without recorders is searched."""
HEAT = 60
"""Searches that are kept."""
STALE_LOOKS = 3
"""Results older than this many searches are no longer shown."""
SKEW = 0.1
"""Seconds. A smaller offset between clocks is more likely a snapshot's transit time."""
CLOCK_SET_SECONDS = 600.0
"""Seconds after a wall clock was set for which recorders, whose times are the wall clock's, are not
compared: they may reach back that far."""


class StragglerWatch(msgspec.Struct, dict=True):
    """Only the engine changes it. ``bind`` sets its settings."""

    next_at: dict[JobKey, float] = {}
    """When each job is next searched."""
    found: dict[JobKey, list[tuple[float, StragglerFacts]]] = {}

    def bind(self, settings: StragglersConfig) -> None:
        """Set the settings."""
        self._settings = settings

    def due(self, view: ClusterView, busy: Collection[JobKey], now: float) -> Iterator[AskArrivals]:
        """The searches that are due. ``busy`` are jobs with a case."""
        interval = self._settings.interval_seconds
        for key in (self.next_at.keys() | self.found.keys()) - view.jobs.keys():
            self.next_at.pop(key, None)
            self.found.pop(key, None)
        for job in view.jobs.values() if interval > 0 else ():
            if now < self.next_at.setdefault(job.key, now + interval):
                continue
            if job.key in busy or not self._wanted(job, now) or _clock_set(view, job, now):
                continue
            self.next_at[job.key] = now + interval
            ranks = tuple(rank.rank for rank in job.live if rank.attached)
            yield AskArrivals(
                job=job.job, attempt=job.attempt, ranks=ranks, offsets=offsets(view, job)
            )

    def _wanted(self, job: JobView, now: float) -> bool:
        # What is asked with each tick, the cheapest first.
        return (
            len(job.pace) >= LEAST_STEPS
            and LEAST_RANKS <= _attached(job) <= self._settings.most_ranks
            and not job.protected_phase(now)
            and job.silence(now) < job.timeout() / 2
        )

    def record(self, event: StragglersFound, now: float) -> None:
        """Record the result of a search."""
        key = (event.job, event.attempt)
        if event.facts is None:
            self.next_at[key] = now + BARREN_FACTOR * self._settings.interval_seconds
        else:
            found = self.found.setdefault(key, [])
            found.append((now, event.facts))
            del found[:-HEAT]

    def status(self, key: JobKey, now: float) -> StragglerStatus | None:
        """The last result, and each rank's lateness over time, for ``status``."""
        found = self.found.get(key)
        if not found:
            return None
        at, facts = found[-1]
        if now - at > STALE_LOOKS * self._settings.interval_seconds:
            return None
        return told_as(facts, at, tuple((when, _percent(old.cost)) for when, old in found[:-1]))


def told_as(
    facts: StragglerFacts, at: float, before: tuple[tuple[float, float], ...] = ()
) -> StragglerStatus:
    """What is told of the look at ``at``; ``before`` are the times and the costs (percent) of those
    before it."""
    cost = _percent(facts.cost)
    return StragglerStatus(
        kind=facts.kind,
        ranks=facts.ranks,
        host=facts.host or next((b.host for b in facts.busy if b.rank in facts.ranks), ""),
        cost_percent=cost,
        confidence=facts.confidence,
        at=at,
        heat=(*before, (at, cost)),
        evidence=facts.evidence,
    )


def _percent(cost: float) -> float:
    return round(100 * cost, 1)


def _attached(job: JobView) -> int:
    return sum(rank.snapshot.progress is not None for rank in job.live)


def _clock_set(view: ClusterView, job: JobView, now: float) -> bool:
    """Whether some of its recorders may still hold times from before a wall clock was set."""
    nodes = (view.nodes.get(rank.node) for rank in job.live)
    return any(node is not None and now - node.clock_set_at < CLOCK_SET_SECONDS for node in nodes)


def offsets(view: ClusterView, job: JobView) -> dict[int, float]:
    """Seconds to add to each rank's clock, if the clock of its host is clearly off."""
    found = {
        rank.rank.id.rank: node.wall_offset
        for rank in job.live
        if (node := view.nodes.get(rank.node)) is not None
    }
    least = min(found.values(), default=0.0)
    return {rank: offset for rank, offset in found.items() if offset - least > SKEW}

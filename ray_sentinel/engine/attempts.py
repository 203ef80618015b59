"""Which attempt a rank belongs to, where each node's launcher counts restarts for itself.

An agent of torchrun counts the failures of its own workers (``TORCHELASTIC_RESTART_COUNT``); a
node that joins later begins at 0, and a change of membership counts nowhere
(``torch/distributed/elastic/agent/server``). So ranks that live at the same time and only together
are their world are of one attempt: the highest that one of them was told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.model.identity import ProcessId, Rank

TOGETHER_SECONDS = 60.0
"""Ranks of one attempt are first seen within so long: launchers start theirs at one moment, agents
are deployed within seconds. What is left of an old attempt was there before."""


class Attempts:
    """Remembers which processes were found to be of another attempt than they were told."""

    def __init__(self) -> None:
        self._found: dict[ProcessId, int] = {}

    def place(self, rank: Rank) -> Rank:
        """The rank under the attempt that it belongs to."""
        attempt = self._found.get(rank.process)
        if attempt is None or attempt == rank.id.attempt:
            return rank
        identity = msgspec.structs.replace(rank.id, attempt=attempt)
        return msgspec.structs.replace(rank, id=identity)

    def recall(self, job: JobView) -> None:
        """A job's processes are of its attempt, whatever they are told."""
        self._found |= dict.fromkeys(job.ranks, job.attempt)

    def join(self, attempts: Iterable[JobView]) -> list[JobView]:
        """Bring together what is one attempt; returns those of one job that are left empty."""
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
            self._found |= {view.rank.process: newest.attempt for view in job.live}
            newest.adopt(job)
        return [job for job in others if not job.ranks]

    def forget(self, jobs: Mapping[tuple[str, int], JobView]) -> None:
        """Let go of processes that no job knows any more."""
        if self._found:
            known = {process for job in jobs.values() for process in job.ranks}
            self._found = {p: attempt for p, attempt in self._found.items() if p in known}


def _one_world(views: list[RankView]) -> bool:
    """Every number of one world is there, each once, and they came together."""
    sizes = {view.rank.world_size for view in views}
    numbers = sorted(view.rank.id.rank for view in views)
    if len(sizes) > 1 or numbers != list(range(sizes.pop() or 0)):
        return False
    seen = [view.first_seen for view in views]
    return max(seen) - min(seen) <= TOGETHER_SECONDS

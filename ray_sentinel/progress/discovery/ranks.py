"""Finds the ranks on a machine from outside: which processes are ranks, and which merely inherited
variables.

The sources, in order of precedence: a live record (the process attached), Ray (the caller provides
it), the environment that a process started with, an inference engine's title. Children inherit
variables, so the topmost interpreter of each (job, rank) is the rank: shells above it are not
interpreters, and dataloader workers below it are its children, even after it died. Launchers are
not ranks, nor are Ray's own processes that inherited variables from the shell that started Ray, nor
are the sentinel's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from ray_sentinel.progress.discovery.environment import (
    ToldRank,
    attempt_from,
    gpus_from,
    job_from,
    rank_from,
)
from ray_sentinel.progress.discovery.launchers import (
    is_launcher,
    is_launcher_of,
    is_rays,
    up_to_a_launcher,
)
from ray_sentinel.progress.discovery.titles import engine_ranks
from ray_sentinel.progress.identity import RankPlace
from ray_sentinel.progress.proc.proc_stat import Key
from ray_sentinel.progress.proc.processes import Process

MAX_FORMER = 4096
"""Most former ranks that are remembered, so that their orphaned children are not taken for ranks.
"""


class DiscoveredRank(RankPlace, frozen=True, kw_only=True):
    """A process that is a rank, and the source that says so."""

    process: Process
    source: str = "environ"
    """The source: "record", "ray", "environ" or "title"."""


class Claim(RankPlace, frozen=True, kw_only=True):
    """A claim that a process is a rank, from its record or from Ray."""

    pid: int
    start: int
    """When that process started, in clock ticks since boot. If it is 0 (unknown), the claim is for
    whatever process has the pid now."""
    source: str = "record"

    def found(self, process: Process) -> DiscoveredRank:
        """The rank, if the claim is accepted for ``process``."""
        return DiscoveredRank(process=process, source=self.source, **self.place())


class _Candidate(msgspec.Struct, frozen=True):
    process: Process
    rank: ToldRank
    job: str
    attempt: int

    @property
    def group(self) -> tuple[str, int]:
        return (self.job, self.rank.rank)


class Discovery:
    """Remembers which processes were ranks, so that what outlives a rank is not taken for one."""

    def __init__(self) -> None:
        self._former: dict[Key, int] = {}
        """Keyed by the rank alone: a rank that renames its job keeps its children."""

    def discover(
        self, table: Mapping[int, Process], claims: Iterable[Claim] = ()
    ) -> tuple[DiscoveredRank, ...]:
        """The ranks among the processes, by job, attempt, rank and pid."""
        claimed = list(self._claimed(table, claims))
        found = {item.process.key: item for item in claimed}
        for item in self._by_environ(table, claimed):
            found.setdefault(item.process.key, item)
        for item in _by_title(table):
            if item.process.key not in found and not item.process.descends_from(found):
                found[item.process.key] = item
        self._remember(found.values())
        return tuple(
            sorted(
                found.values(),
                key=lambda item: (item.job, item.attempt, item.rank, item.process.pid),
            )
        )

    def _remember(self, found: Iterable[DiscoveredRank]) -> None:
        for item in found:
            self._former.pop(item.process.key, None)
            self._former[item.process.key] = item.rank
        while len(self._former) > MAX_FORMER:
            del self._former[next(iter(self._former))]

    def _claimed(
        self, table: Mapping[int, Process], claims: Iterable[Claim]
    ) -> Iterator[DiscoveredRank]:
        accepted: dict[Key, Claim] = {}
        for claim in claims:
            process = table.get(claim.pid)
            if process is None or claim.start not in (0, process.start) or process.is_ours:
                continue
            # The first claim counts: records come before what Ray says.
            accepted.setdefault(process.key, claim)
        for key, claim in accepted.items():
            process = table[key[0]]
            above = (accepted[other] for other in process.lineage if other in accepted)
            # A child that ran the attaching line again, such as a spawned dataloader worker.
            if any((other.job, other.rank) == (claim.job, claim.rank) for other in above):
                continue
            yield claim.found(process)

    def _by_environ(
        self, table: Mapping[int, Process], claimed: Iterable[DiscoveredRank]
    ) -> Iterator[DiscoveredRank]:
        candidates = {
            candidate.process.key: candidate
            for process in table.values()
            if (candidate := _candidate(process, table)) is not None
        }
        launchers = _launchers(candidates, table)
        told = {item.process.key: item for item in claimed}
        for candidate in candidates.values():
            process = candidate.process
            if process.key in launchers or process.key in told:
                continue
            above = tuple(up_to_a_launcher(process, table))
            if self._is_child(candidate, above, candidates, launchers):
                continue
            if _is_settled(candidate, above, told, candidates):
                continue
            yield DiscoveredRank(
                process=process,
                job=candidate.job,
                rank=candidate.rank.rank,
                attempt=candidate.attempt,
                world_size=candidate.rank.world_size,
                local_rank=candidate.rank.local_rank,
                gpus=gpus_from(process.environ),
            )

    def _is_child(
        self,
        candidate: _Candidate,
        lineage: Iterable[Key],
        candidates: Mapping[Key, _Candidate],
        launchers: set[Key],
    ) -> bool:
        for key in lineage:
            if key in launchers:
                continue
            above = candidates.get(key)
            if above is not None and above.group == candidate.group:
                return True
            if self._former.get(key) == candidate.rank.rank:
                return True
        return False


def _candidate(process: Process, table: Mapping[int, Process]) -> _Candidate | None:
    if not process.interpreter or not process.environ:
        return None
    rank = rank_from(process.environ)
    if rank is None or process.is_ours or is_launcher(process):
        return None
    for pid, start in process.lineage:
        above = table.get(pid)
        if above is None or above.start != start:
            continue
        if above.command != "raylet" and not is_rays(above):
            continue
        # Ray itself was started with these variables: all of its workers have them, and so has a
        # driver that its command line starts.
        if rank_from(above.environ) == rank:
            return None
    return _Candidate(process, rank, job_from(process.environ), attempt_from(process.environ))


def _launchers(candidates: Mapping[Key, _Candidate], table: Mapping[int, Process]) -> set[Key]:
    """Candidates that are not ranks, because they started ranks: their descendants' variables show
    it, or a launcher in between that passed on the rank that it was given itself."""
    found = set()
    for below in candidates.values():
        near = set(up_to_a_launcher(below.process, table))
        for key in below.process.lineage:
            above = candidates.get(key)
            if above is None:
                continue
            again = key not in near and above.group == below.group
            if is_launcher_of(above.rank, below.rank) or (again and above.rank.local_rank is None):
                found.add(key)
    return found


def _is_settled(
    candidate: _Candidate,
    lineage: Collection[Key],
    told: Mapping[Key, DiscoveredRank],
    candidates: Mapping[Key, _Candidate],
) -> bool:
    """Whether a claim about a relative decides what the candidate is."""
    process = candidate.process
    for key, item in told.items():
        if key in process.lineage:
            if key in lineage and item.rank == candidate.rank.rank:
                return True
            continue
        other = candidates.get(key)
        if other is None or other.group != candidate.group:
            continue
        # A wrapper above the rank, or another program beside it in the same wrapper.
        if process.key in item.process.lineage or process.parent == item.process.parent:
            return True
    return False


def _by_title(table: Mapping[int, Process]) -> Iterator[DiscoveredRank]:
    for engine in engine_ranks(table):
        process = engine.process
        if not process.is_ours:
            yield DiscoveredRank(
                process=process,
                job=job_from(process.environ) or engine.job,
                rank=engine.rank,
                attempt=attempt_from(process.environ),
                world_size=engine.world_size,
                gpus=gpus_from(process.environ),
                role="engine",
                source="title",
            )

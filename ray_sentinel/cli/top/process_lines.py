"""Ranks, drivers and actors of a status in one form, so that all panes show the same of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ray_sentinel.cli.open_incidents import is_open
from ray_sentinel.cli.status_view import WELL
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus, MemberStatus, RankStatus, Status


class ProcessLine(NamedTuple):
    """One watched process of a job. A tuple, and not a record: thousands are made each second."""

    who: str
    job: str
    host: str
    pid: int
    state: str
    step: int | None
    behind: int
    """Steps by which the process is behind the furthest rank of the job."""
    does: str
    """The phase or the method that the process is in."""
    seconds: float | None
    """Seconds since its last step, or since its call began."""
    role: str
    rank: int | None
    accused: bool
    """Whether an open incident names the process."""

    @property
    def in_trouble(self) -> bool:
        """Whether an incident names it, or its state is not a good one."""
        return self.accused or self.state not in WELL

    def matches(self, wanted: str) -> bool:
        """Whether what people see of it contains ``wanted``, which is in lower case."""
        text = f"{self.who} {self.job} {self.host} {self.pid} {self.state} {self.does} {self.role}"
        return wanted in text.lower()


def accused_pids(incidents: Iterable[Incident]) -> frozenset[tuple[str, int]]:
    """(host, pid) of all whom open incidents name."""
    return frozenset(
        (culprit.host, culprit.pid)
        for incident in incidents
        if is_open(incident) and incident.verdict is not None
        for culprit in incident.verdict.culprits
        if culprit.pid is not None
    )


def process_lines(status: Status, accused: frozenset[tuple[str, int]]) -> list[ProcessLine]:
    """All processes of the running jobs, by job, those that are no ranks first."""
    lines: list[ProcessLine] = []
    for job in status.jobs:
        if not job.ended:
            lines += [_of_member(job, member, accused) for member in job.members]
            ahead = max((rank.step for rank in job.ranks if rank.step is not None), default=0)
            lines += [_of_rank(job, rank, ahead, accused) for rank in job.ranks]
    return lines


def _of_rank(
    job: JobStatus, rank: RankStatus, ahead: int, accused: frozenset[tuple[str, int]]
) -> ProcessLine:
    return ProcessLine(
        f"rank {rank.rank}", job.job, rank.host, rank.pid, rank.state, rank.step,
        0 if rank.step is None else ahead - rank.step, rank.phase, rank.step_age_seconds,
        rank.role, rank.rank, (rank.host, rank.pid) in accused,
    )  # fmt: skip


def _of_member(
    job: JobStatus, member: MemberStatus, accused: frozenset[tuple[str, int]]
) -> ProcessLine:
    return ProcessLine(
        member.label, job.job, member.host, member.pid, member.state, None, 0, member.method,
        member.seconds, member.role, None, (member.host, member.pid) in accused,
    )  # fmt: skip


def worst_first(lines: Iterable[ProcessLine]) -> list[ProcessLine]:
    """The accused, then those in a bad state, then who is furthest behind; else as they came."""
    return sorted(lines, key=lambda one: (not one.accused, one.state in WELL, -one.behind))

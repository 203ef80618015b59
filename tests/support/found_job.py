"""Jobs without a line of ours: when they train, and what the sentinel says of them."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus
from tests.support.living import alive
from tests.support.ray_cluster import Watched
from tests.support.waiting import eventually

START_SECONDS = 120.0
"""Torch is imported in every rank, on however few CPUs there are."""


def training(folder: Path, count: int, *logs: Path) -> dict[int, int]:
    """Pids by rank, once all ranks have left theirs in ``folder/rank-RANK`` and live: a job that
    was restarted finds the files of its earlier ranks there. ``logs`` are printed where they do
    not."""

    def pids() -> dict[int, int]:
        found = {
            int(path.name.removeprefix("rank-")): int(path.read_text() or 0)
            for path in folder.glob("rank-*")
        }
        return found if len(found) == count and all(map(alive, found.values())) else {}

    try:
        return eventually(pids, "all ranks train", START_SECONDS)
    except AssertionError:
        for log in logs:
            print(log.read_text()[-3000:])
        raise


def job_of(watched: Watched, pids: dict[int, int]) -> JobStatus:
    """The job whose living ranks are these processes, each under its own number."""

    def seen() -> JobStatus | None:
        for job in watched.status().jobs:
            if {rank.rank: rank.pid for rank in job.ranks if rank.state != "exited"} == pids:
                return job
        return None

    try:
        return eventually(seen, f"a job of the ranks {pids}")
    except AssertionError:
        print(watched.status())
        raise


def until_known(watched: Watched, pids: dict[int, int]) -> JobStatus:
    """The same, once it was seen to train for so long that its silence means something."""
    return eventually(
        lambda: job if (job := job_of(watched, pids)).phase == "train" else None,
        f"the ranks {pids} are known to train",
    )


def incidents(watched: Watched, job: str) -> list[Incident]:
    """All that were raised for a job."""
    return [it for it in watched.ask("incidents", tuple[Incident, ...]) if it.job == job]


def named(watched: Watched, job: str, pid: int, seconds: float = 30.0) -> Incident:
    """The incident that blames this process alone."""

    def blamed() -> Incident | None:
        for incident in incidents(watched, job):
            if incident.verdict is not None:
                assert [culprit.pid for culprit in incident.verdict.culprits] == [pid]
                return incident
        return None

    try:
        return eventually(blamed, "the culprit is named", seconds)
    except AssertionError:
        print(watched.status().verdict, watched.status().jobs, sep="\n")
        raise

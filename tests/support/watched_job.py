"""A job of plain processes beside a watched cluster, and what the sentinel says of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus
from ray_sentinel.progress.discovery.environment import VARIABLES
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

T = TypeVar("T")

PROGRAM = Path(__file__).with_name("rank_program.py")
ROOT = Path(__file__).resolve().parents[2]


def rank_environ(job: str, rank: int, size: int) -> dict[str, str]:
    """What a launcher would set, without what this process may have of it."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    told = {"RAY_SENTINEL_JOB": job, "RANK": str(rank), "WORLD_SIZE": str(size)}
    return {**kept, **told, "PYTHONPATH": str(ROOT)}


class WatchedJob:
    """Ranks that step every 50 ms, and one of which may do something wrong at step ``at``."""

    def __init__(self, cluster: RayCluster, watched: Watched, name: str) -> None:
        self.cluster, self.watched, self.name = cluster, watched, name
        self.ranks: list[subprocess.Popen[bytes]] = []

    def start(self, *faults: str, at: int = 60, before: tuple[str, ...] = ()) -> None:
        """One rank for each fault; ``before`` are words to put before its command line."""
        for rank, fault in enumerate(faults):
            command = [*before, sys.executable, str(PROGRAM), fault, "300", str(at)]
            environ = rank_environ(self.name, rank, len(faults))
            self.ranks.append(subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL))

    def status(self) -> JobStatus | None:
        """As the coordinator sees it; None where it does not."""
        return next((job for job in self.watched.status().jobs if job.job == self.name), None)

    def steps(self) -> dict[int, int]:
        """The ranks' last steps."""
        job = self.status()
        return {rank.rank: rank.step or 0 for rank in job.ranks} if job else {}

    def until_training(self, count: int, beyond: int = 5) -> None:
        """Wait until so many ranks have taken some steps."""

        def all_step() -> bool:
            steps = self.steps()
            return len(steps) == count and min(steps.values()) > beyond

        self._wait(all_step, f"{count} ranks of {self.name} take steps", 60.0)

    def incidents(self) -> list[Incident]:
        """Those of this job."""
        found = self.watched.ask("incidents", tuple[Incident, ...])
        return [incident for incident in found if incident.job == self.name]

    def verdict(self, seconds: float = 45.0) -> Incident:
        """The job's only incident, once it has a verdict."""

        def named() -> Incident | None:
            found = self.incidents()
            assert len(found) <= 1, found
            return found[0] if found and found[0].verdict is not None else None

        return self._wait(named, f"a verdict on {self.name}", seconds)

    def _wait(self, look: Callable[[], T | None], what: str, seconds: float) -> T:
        try:
            return eventually(look, what, seconds)
        except AssertionError:
            status = self.watched.status()
            print(status.verdict, status.notes, status.unwatched, self.status(), sep="\n")
            print("the ranks' return codes:", [rank.poll() for rank in self.ranks])
            raise

    def close(self) -> None:
        """End the ranks, also those that are stopped."""
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()

    def __enter__(self) -> WatchedJob:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def culprits(incident: Incident) -> list[tuple[int, int]]:
    """(rank, pid) of those who are blamed."""
    assert incident.verdict is not None
    return [(culprit.rank, culprit.pid) for culprit in incident.verdict.culprits]

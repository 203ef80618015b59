"""Real gloo trainings on a real cluster: the demo, and healthy jobs beside each other."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ray_sentinel.demo.plan import draw
from ray_sentinel.demo.stage import show_nothing
from ray_sentinel.demo.story import run
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
HEALTHY = Path(__file__).parents[1] / "support" / "healthy_train.py"
WORLD = 2
CALM = {"checkpoint": ("40", "22"), "long-step": ("12", "22"), "dataloader": ("0", "60")}
"""What takes long, how many seconds, and how many steps there are."""
FIRST, LAST = "long-step", "checkpoint"
"""The job that ends while the other goes on."""


def incidents(watched: Watched, job: str) -> list[Incident]:
    return [found for found in watched.ask("incidents", list[Incident]) if found.job == job]


def test_the_demo_names_the_rank_and_leaves_a_report(tmp_path: Path) -> None:
    outcome = run(draw("fifo", seed=38, attach="attach", world=4), tmp_path, show=show_nothing)
    assert outcome.wrong == ""
    assert outcome.incident is not None
    folder = Path(outcome.incident.bundle)
    (rank,) = outcome.plan.ranks
    assert json.loads((folder / "incident.json").read_text())["culprits"][0]["rank"] == rank
    assert f"rank {rank}" in (folder / "report.md").read_text()
    assert list(folder.glob("pyspy_*.txt"))


class HealthyJob:
    """A training of several ranks on this machine, as torchrun would start it."""

    def __init__(self, cluster: RayCluster, name: str, *arguments: str) -> None:
        self.name = name
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.children = [
            subprocess.Popen(
                [sys.executable, str(HEALTHY), *arguments],
                env=cluster.environ(
                    RANK=str(rank),
                    WORLD_SIZE=str(WORLD),
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=str(port),
                    GLOO_SOCKET_IFNAME="lo",
                    OMP_NUM_THREADS="1",
                    TEST_JOB=name,
                ),
            )
            for rank in range(WORLD)
        ]

    def wait(self, seconds: float) -> None:
        """Until it has ended in peace; fails where it does not."""
        deadline = time.monotonic() + seconds
        for child in self.children:
            assert child.wait(timeout=max(0.1, deadline - time.monotonic())) == 0

    def end(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait(timeout=10)


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


@pytest.fixture(scope="module")
def healthy(
    ray_cluster: RayCluster, watched_by_files: Watched
) -> Iterator[Mapping[str, HealthyJob]]:
    """They run beside each other, for they mostly wait."""
    jobs = {what: HealthyJob(ray_cluster, what, what, *more) for what, more in CALM.items()}
    yield jobs
    for job in jobs.values():
        job.end()


def job_status(watched: Watched, name: str) -> JobStatus | None:
    return next((job for job in watched.status().jobs if job.job == name), None)


def ended(watched: Watched, name: str) -> Callable[[], bool]:
    def look() -> bool:
        job = job_status(watched, name)
        return job is not None and job.ended

    return look


def test_a_job_that_ends_while_another_runs_raises_nothing(
    watched: Watched, healthy: Mapping[str, HealthyJob]
) -> None:
    long, short = healthy[LAST], healthy[FIRST]
    short.wait(250)
    eventually(ended(watched, short.name), "the end of the short one is seen", 20)
    still = job_status(watched, long.name)
    assert still is not None
    assert not still.ended
    long.wait(150)
    eventually(ended(watched, long.name), "the end of the long one is seen", 20)
    time.sleep(3)
    assert incidents(watched, long.name) + incidents(watched, short.name) == []


@pytest.mark.parametrize("what", CALM)
def test_a_healthy_job_raises_nothing(
    what: str, watched: Watched, healthy: Mapping[str, HealthyJob]
) -> None:
    job = healthy[what]
    eventually(lambda: job_status(watched, what), "the job is seen", 150)
    job.wait(200)
    eventually(ended(watched, what), "the end is seen", 20)
    seen = job_status(watched, what)
    assert seen is not None
    assert sorted(rank.rank for rank in seen.ranks) == list(range(WORLD))
    time.sleep(3)
    assert incidents(watched, what) == []

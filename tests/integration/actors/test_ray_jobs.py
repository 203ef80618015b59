"""Jobs in Ray's own workers, none of which has a line of ours: found, watched, and named."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.model.status import JobStatus
from tests.support.found_job import job_of, named, training, until_known
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture
def watched(watched_by_all: Watched) -> Watched:
    return watched_by_all


@contextlib.contextmanager
def job(cluster: RayCluster, folder: Path, script: str, *arguments: str) -> Iterator[None]:
    """A driver of its own; ended with its workers."""
    folder.mkdir()
    environ = cluster.environ(
        RAY_TRAIN_V2_ENABLED="1", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1"
    )
    with open(folder / "driver.log", "wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(SUPPORT / script), *arguments],
            env=environ,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        for path in folder.glob("rank-*"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text()), signal.SIGCONT)
        driver.kill()
        driver.wait()


@pytest.mark.usefixtures("ray_train")
def test_ray_train(ray_cluster: RayCluster, watched: Watched, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with job(ray_cluster, folder, "train_job.py", str(folder), "llama-run", "3"):
        pids = training(folder, 3, folder / "driver.log")
        found = job_of(watched, pids)
        assert (found.job, found.world_size) == ("llama-run", 3)
        os.kill(pids[1], signal.SIGSTOP)
        incident = named(watched, "llama-run", pids[1])
        assert incident.kind == "rank-stopped"
        assert incident.verdict is not None
        assert [culprit.rank for culprit in incident.verdict.culprits] == [1]


@pytest.mark.usefixtures("ray_train")
def test_a_rank_of_ray_train_that_falls_asleep(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path
) -> None:
    """Its main thread serves the controller all the while: only the thread that trains is still."""
    folder = tmp_path / "job"
    with job(ray_cluster, folder, "train_job.py", str(folder), "sleepy-run", "2"):
        pids = training(folder, 2, folder / "driver.log")
        # Of one that has hardly begun nothing is learned, and a minute would have to pass.
        until_known(watched, pids)
        (folder / "stuck-1").touch()
        incident = named(watched, "sleepy-run", pids[1], 180.0)
        assert incident.kind == "host-stuck"


def test_plain_actors_that_set_their_rank(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    with job(ray_cluster, folder, "actors_job.py", str(folder), "3", "environ"):
        pids = training(folder, 3, folder / "driver.log")
        found = job_of(watched, pids)
        assert found.world_size == 3
        os.kill(pids[2], signal.SIGSTOP)
        incident = named(watched, found.job, pids[2])
        assert incident.kind == "rank-stopped"
        assert incident.verdict is not None
        assert [culprit.rank for culprit in incident.verdict.culprits] == [2]


def test_plain_actors_that_tell_nobody_their_rank(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    with job(ray_cluster, folder, "actors_job.py", str(folder), "3", "silent"):
        pids = training(folder, 3, folder / "driver.log")

        def seen() -> JobStatus | None:
            for job in watched.status().jobs:
                if {rank.pid for rank in job.ranks} == set(pids.values()):
                    return job
            return None

        found = eventually(seen, "the three actors as one job")
        assert found.job.startswith("actors_job-")
        assert found.job.endswith(".Trainer")
        assert sorted(rank.rank for rank in found.ranks) == [0, 1, 2]
        assert any(found.job in note for note in watched.status().notes), "it says so"
        os.kill(pids[2], signal.SIGSTOP)
        assert named(watched, found.job, pids[2]).kind == "rank-stopped"

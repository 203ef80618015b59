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

from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus
from tests.support.found_job import incidents, job_of, named, training, until_known
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


@contextlib.contextmanager
def job(cluster: RayCluster, folder: Path, script: str, *arguments: str) -> Iterator[None]:
    """A driver that runs ``script``. At the end, it and its workers are ended."""
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
    """A rank that is stopped, and, once it went on, one that falls asleep."""
    folder = tmp_path / "job"
    with job(ray_cluster, folder, "train_job.py", str(folder), "llama-run", "2"):
        pids = training(folder, 2, folder / "driver.log")
        found = job_of(watched, pids)
        assert (found.job, found.world_size) == ("llama-run", 2)
        os.kill(pids[1], signal.SIGSTOP)
        stopped = named(watched, "llama-run", pids[1])
        assert stopped.kind == "rank-stopped"
        assert stopped.verdict is not None
        assert [culprit.rank for culprit in stopped.verdict.culprits] == [1]

        def after_it() -> list[Incident]:
            found = incidents(watched, "llama-run")
            assert [incident.id for incident in found].count(stopped.id) == 1
            return [incident for incident in found if incident.id != stopped.id]

        os.kill(pids[1], signal.SIGCONT)
        eventually(
            lambda: [one.state for one in incidents(watched, "llama-run")] == ["resolved"],
            "it goes on",
        )
        # Of one that has hardly begun nothing is learned, and a minute would have to pass.
        until_known(watched, pids)
        (folder / "stuck-1").touch()
        # Its main thread serves the controller all the while: only the one that trains is still.
        (asleep,) = eventually(
            lambda: [one for one in after_it() if one.verdict is not None], "it is named", 180.0
        )
        assert asleep.kind == "host-stuck"
        assert asleep.verdict is not None
        assert [culprit.pid for culprit in asleep.verdict.culprits] == [pids[1]]


def test_plain_actors_that_set_their_rank(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    with job(ray_cluster, folder, "actors_job.py", str(folder), "2", "environ"):
        pids = training(folder, 2, folder / "driver.log")
        found = job_of(watched, pids)
        assert found.world_size == 2
        os.kill(pids[1], signal.SIGSTOP)
        incident = named(watched, found.job, pids[1])
        assert incident.kind == "rank-stopped"
        assert incident.verdict is not None
        assert [culprit.rank for culprit in incident.verdict.culprits] == [1]


def test_plain_actors_that_tell_nobody_their_rank(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    with job(ray_cluster, folder, "actors_job.py", str(folder), "2", "silent"):
        pids = training(folder, 2, folder / "driver.log")

        def seen() -> JobStatus | None:
            for job in watched.status().jobs:
                if {rank.pid for rank in job.ranks} == set(pids.values()):
                    return job
            return None

        found = eventually(seen, "the two actors as one job")
        assert found.job.startswith("actors_job-")
        assert found.job.endswith(".Trainer")
        assert sorted(rank.rank for rank in found.ranks) == [0, 1]
        assert any(found.job in note for note in watched.status().notes), "it says so"
        os.kill(pids[1], signal.SIGSTOP)
        assert named(watched, found.job, pids[1]).kind == "rank-stopped"

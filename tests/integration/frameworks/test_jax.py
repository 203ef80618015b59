"""JAX over several processes, without a line of ours: found from outside, watched, and named."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.progress.discovery.environment import VARIABLES
from tests.support.found_job import incidents, named, training, until_known
from tests.support.parts import lacking
from tests.support.ray_cluster import RayCluster, Watched

pytestmark = pytest.mark.integration

TRAIN = Path(__file__).parents[2] / "support/jax_train.py"
WORLD = 3


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


@contextlib.contextmanager
def jax_job(cluster: RayCluster, folder: Path) -> Iterator[tuple[str, Path]]:
    """A job of JAX: the name under which it is found, and its log. At the end its processes are
    killed. The host's name stands for the loopback address in the job's name."""
    if importlib.util.find_spec("jax") is None:
        lacking("jax is missing: pip install jax")
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    kept = {key: value for key, value in cluster.environ().items() if key not in VARIABLES}
    log = folder / "output.log"
    with open(log, "wb") as output:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", str(TRAIN), str(folder)],
                env=kept
                | {
                    "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                    "JAX_NUM_PROCESSES": str(WORLD),
                    "JAX_PROCESS_ID": str(rank),
                    "JAX_PLATFORMS": "cpu",
                },
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            for rank in range(WORLD)
        ]
    try:
        yield f"{socket.gethostname()}:{port}", log
    finally:
        for process in ranks:
            process.kill()
        for process in ranks:
            process.wait(timeout=10)


def test_a_stopped_process(ray_cluster: RayCluster, watched: Watched, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with jax_job(ray_cluster, folder) as (name, log):
        pids = training(folder, WORLD, log)
        found = until_known(watched, pids)
        assert (found.job, found.attempt, found.world_size) == (name, 0, WORLD)
        assert incidents(watched, name) == [], "neither its compiling nor its steps are a hang"
        os.kill(pids[1], signal.SIGSTOP)
        incident = named(watched, name, pids[1])
        assert incident.kind == "rank-stopped"
        assert incident.verdict is not None
        assert [culprit.rank for culprit in incident.verdict.culprits] == [1]


def test_a_process_that_sleeps_between_two_steps(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    with jax_job(ray_cluster, folder) as (name, log):
        pids = training(folder, WORLD, log)
        until_known(watched, pids)
        assert incidents(watched, name) == []
        (folder / "stuck-2").touch()
        incident = named(watched, name, pids[2], 60.0)
        assert incident.kind == "host-stuck"
        assert incident.verdict is not None
        assert [culprit.rank for culprit in incident.verdict.culprits] == [2]
        assert "wait_if_told" in incident.verdict.culprits[0].reason

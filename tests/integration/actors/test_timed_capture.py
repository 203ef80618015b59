"""A capture after a fixed time on a real cluster, with the real cuda-gdb: all ranks, no harm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ray_sentinel.actors.coordinator.gathering.timed_capture import is_timed
from ray_sentinel.model.incident import Incident
from tests.support.parts import needs_root, require
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually
from tests.support.watched_job import PROGRAM, WatchedJob, rank_environ

pytestmark = pytest.mark.integration

JOB = "timed-job"
WAIT_SECONDS = 3.0


@pytest.fixture
def device() -> Iterator[int]:
    """Whoever has it open looks like a process with an NVIDIA device: cuda-gdb is run on it."""
    path = Path(f"/dev/nvidia-test-{os.getpid()}")
    handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600)
    yield handle
    os.close(handle)
    path.unlink()


@pytest.fixture
def timed(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[Watched]:
    ray_cluster.up(tmp_path / "log", RAY_SENTINEL_CAPTURE__WAIT_SECONDS=str(WAIT_SECONDS))
    with ray_cluster.connected() as ray:
        yield Watched(ray)
    ray_cluster.down()


@needs_root()
def test_cuda_gdb_looks_at_every_rank_and_the_training_goes_on(
    ray_cluster: RayCluster, timed: Watched, device: int, tmp_path: Path
) -> None:
    require("cuda-gdb")
    with WatchedJob(ray_cluster, timed, JOB) as job:
        for rank in range(2):
            command = [sys.executable, str(PROGRAM), "none", "300", "60"]
            environ = rank_environ(JOB, rank, 2)
            quiet = subprocess.DEVNULL
            job.ranks.append(subprocess.Popen(command, env=environ, stdin=device, stderr=quiet))
        job.until_training(2)
        incident = eventually(lambda: captured(job), "it is captured", 120.0)
        pids = {process.pid for process in job.ranks}
        seen = {pid: psutil.Process(pid).status() for pid in pids}
        steps = job.steps()
        eventually(lambda: moved_on(job, steps), "both ranks take more steps")
        assert all(process.poll() is None for process in job.ranks)
    assert not {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP} & set(seen.values())
    files = {int(f.stem.rpartition("_")[2]): f for f in Path(incident.bundle).glob("cudagdb_*.txt")}
    assert files.keys() == pids
    for file in files.values():
        text = file.read_text()
        assert "Thread" in text, text
        assert re.search(r"^#0 ", text, re.MULTILINE), text
    links = {path.name for path in (tmp_path / "log/backtraces").iterdir()}
    assert {file.name for file in files.values()} <= links
    assert {f"pyspy_{f.name.removeprefix('cudagdb_')}" for f in files.values()} <= links
    assert {log.pid for log in incident.logs} == pids, "what they wrote was asked for, too"


def captured(job: WatchedJob) -> Incident | None:
    return next((i for i in job.incidents() if is_timed(i) and i.bundle), None)


def moved_on(job: WatchedJob, before: dict[int, int]) -> bool:
    now = job.steps()
    return all(now.get(rank, 0) > step + 5 for rank, step in before.items())

"""A job watched by agents and a coordinator whose wall clocks are set, forward and back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.engine.events import SnapshotReceived, StacksTaken
from tests.support.found_job import named
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.stepped_clock import SteppedClock
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

RANK = Path(__file__).parents[2] / "support/shell_rank.py"
JOB = "stepped-job"
HOUR = 3600
UP = """
import os, sys
from ray_sentinel.actors.deployment import environment
environment._OWN |= {name: os.environ[name] for name in ("LD_PRELOAD", "STEPPED_CLOCK_FILE")}
from ray_sentinel.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""``ray-sentinel up`` whose actors have the other clock."""


@pytest.fixture
def clock(tmp_path: Path) -> SteppedClock:
    return SteppedClock(tmp_path)


@pytest.fixture
def watched(ray_cluster: RayCluster, clock: SteppedClock, tmp_path: Path) -> Iterator[Watched]:
    """The cluster watched by processes with that clock."""
    up = [sys.executable, "-c", UP, "up", "--log-dir", str(tmp_path / "log")]
    environ = ray_cluster.environ(**clock.environ)
    subprocess.run(up, env=environ, check=True, capture_output=True, timeout=120)
    with ray_cluster.connected() as ray:
        yield Watched(ray)
    ray_cluster.down()


@pytest.fixture
def ranks(ray_cluster: RayCluster, watched: Watched) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two, in training."""
    started = [
        subprocess.Popen(
            [sys.executable, str(RANK), JOB],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=ray_cluster.environ(RANK=str(number), WORLD_SIZE="2"),
        )
        for number in range(2)
    ]
    try:
        eventually(lambda: step_of(watched) > 30, "both ranks take steps")
        yield started
    finally:
        for rank in started:
            rank.kill()
            rank.wait()


def step_of(watched: Watched) -> int:
    jobs = [job for job in watched.status().jobs if job.job == JOB and len(job.ranks) == 2]
    return (jobs[0].step or 0) if jobs else 0


def test_nobody_is_accused_and_a_hang_is_found_at_once(
    watched: Watched, ranks: list[subprocess.Popen[bytes]], clock: SteppedClock, tmp_path: Path
) -> None:
    for offset in (HOUR, -HOUR):
        clock.set(offset)
        begun, step = time.monotonic(), step_of(watched)
        while time.monotonic() - begun < 5.0:
            status = watched.status()
            assert status.state == "healthy", status.verdict
            time.sleep(0.5)
        assert step_of(watched) > step + 10
        assert status.time == pytest.approx(time.time() + offset, abs=30), "as the wall clock says"
    stopped = time.time()
    os.kill(ranks[0].pid, signal.SIGSTOP)
    incident = named(watched, JOB, ranks[0].pid, seconds=15.0)
    assert incident.kind == "rank-stopped"
    assert incident.suspected_at == pytest.approx(stopped - HOUR, abs=15), "as the wall clock says"
    folders = (tmp_path / "log" / "events").iterdir()
    (log,) = [path for path in folders if path.is_dir() and event_log.segments(path)]
    _, events = event_log.read(log)
    times = [event.time for event in events]
    assert times == sorted(times)
    assert times[-1] - times[0] < 120, "the engine's time has not jumped"
    shifts = {round(e.snapshot.clock_shift) for e in events if isinstance(e, SnapshotReceived)}
    assert shifts == {0, HOUR, -HOUR}, "the agents have seen both"
    before = [e for e in events if e.time < incident.suspected_at - incident.clock_shift]
    assert not [event for event in before if isinstance(event, StacksTaken)], "left alone"

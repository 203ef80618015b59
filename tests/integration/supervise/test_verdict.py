"""The whole way: the sentinel confirms a hang, captures it, and the supervisor restarts the job."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ray_cluster import RayCluster

pytestmark = pytest.mark.integration

TRAIN = """
import os, time
import ray_sentinel
sentinel = ray_sentinel.attach(rank=0, world_size=1)
def a_lock_that_nobody_gives_back():
    time.sleep(3600)
for n in range(1, 121):
    time.sleep(0.1)
    sentinel.step(n)
    if n == 60 and os.environ["RAY_SENTINEL_ATTEMPT"] == "0":
        a_lock_that_nobody_gives_back()
"""
PORT = "29401"


@pytest.fixture
def watched_cluster(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[RayCluster]:
    ray_cluster.up(tmp_path / "log", RAY_SENTINEL_COORDINATOR__PORT=PORT)
    yield ray_cluster
    ray_cluster.down()


def test_a_confirmed_hang_is_captured_by_the_agents_and_then_restarted(
    watched_cluster: RayCluster, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "ray_sentinel.cli.main", "run", "--job", "verdict", "--json"),
            *("--page", f"http://127.0.0.1:{PORT}", "--retry-delay", "0.5"),
            *("--notify-command", f"sh -c 'cat >> {told}'"),
            *("--", sys.executable, "-c", TRAIN),
        ],
        env=watched_cluster.environ(RAY_SENTINEL_LOG_DIR=str(tmp_path / "run")),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["final_step"], result["total_retries"]) == (120, 1)
    stacks = [path.read_text() for path in (tmp_path / "log/incidents").glob("*/pyspy_*.txt")]
    assert any("a_lock_that_nobody_gives_back" in text for text in stacks), ended.stderr
    assert "(incident " in ended.stderr
    events = [
        json.loads(line)["event"] for line in told.read_text().replace("}{", "}\n{").split("\n")
    ]
    assert events == ["hang", "restart", "success"]

"""A node of a real Ray cluster is lost; the job goes on from its checkpoint on what is left."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ray_cluster import RayCluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

DRIVER = Path(__file__).parents[2] / "support/actor_train.py"
LOST, LEFT = "127.0.0.7", "127.0.0.3"
"""The node that the job trains on, and the one that it takes when that is gone: each time the last
by its address."""


@pytest.fixture
def cluster(ray_cluster: RayCluster) -> Iterator[RayCluster]:
    """With one more node, which the test takes away."""
    ray_cluster.add(LOST)
    yield ray_cluster
    with contextlib.suppress(KeyError):  # it is gone
        ray_cluster.retire(LOST)


def test_a_lost_node_is_followed_by_a_restart_on_another(
    cluster: RayCluster, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    started = subprocess.Popen(
        [
            *(sys.executable, "-m", "ray_sentinel.cli.main", "run", "--job", "job", "--json"),
            *("--page", "", "--retry-delay", "3", "--checkpoint-dir", str(saved), "--"),
            *(sys.executable, str(DRIVER), str(saved), "{checkpoint}"),
        ],
        env=cluster.environ(RAY_SENTINEL_LOG_DIR=str(tmp_path / "log")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        output = tmp_path / "log/run/job/attempt-0000/output.log"
        eventually(lambda: output.exists() and "step 12 " in output.read_text(), "step 12", 90.0)
        cluster.remove(LOST)
        out, seen = started.communicate(timeout=120)
    finally:
        if started.poll() is None:
            started.terminate()
            started.communicate(timeout=60)
    assert started.returncode == 0, seen.decode()
    result = json.loads(out)
    # Ray lists the node as alive for some seconds: a first restart may still go there.
    assert result["final_step"] == 30
    assert 1 <= result["total_retries"] <= 4
    last = tmp_path / f"log/run/job/attempt-{result['total_retries']:04d}/output.log"
    assert set(re.findall(r"on (\S+)", last.read_text())) == {LEFT}
    assert re.search(r"attempt 1 starts from \S+/step_1[0-5]", seen.decode())

"""Deployment on a real Ray cluster of three nodes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

ENSURE = """
import sys
from ray_sentinel.actors.deployment import cluster, deploy
from ray_sentinel.config import load
with cluster.connect(ship=True) as ray:
    deployed = deploy.ensure(ray, load(overrides={"log_dir": sys.argv[1]}))
    print(deployed.description.pid, deployed.created)
"""


def _ours(ray: Any) -> list[str]:
    """The names of our actors."""
    named = ray.util.list_named_actors(all_namespaces=True)
    return [entry["name"] for entry in named if entry["namespace"] == "ray_sentinel"]


def _groups(ray: object) -> dict[str, str]:
    from ray.util.placement_group import placement_group_table

    from ray_sentinel.actors.deployment import placement

    return {key: placement_group_table(one)["state"] for key, one in placement.groups().items()}


def test_one_coordinator_from_eight_processes_at_once_and_down_leaves_nothing(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    with ray_cluster.connected() as ray:
        assert _ours(ray) == [], "left by another test"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ENSURE, str(tmp_path)],
            env=ray_cluster.environ(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    said = [process.communicate(timeout=120)[0].split() for process in started]
    assert [process.returncode for process in started] == [0] * 8
    assert len({pid for pid, _ in said}) == 1
    assert [created for _, created in said].count("True") == 1
    with ray_cluster.connected() as ray:
        watched = Watched(ray)
        eventually(lambda: len(watched.agents()) == 3, "three agents report")
        assert set(_groups(ray).values()) == {"CREATED"}
        assert len(_groups(ray)) == 3
        pids = [agent.pid for agent in watched.agents().values()]
    ended = ray_cluster.run("down", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["left"] == []
    with ray_cluster.connected() as ray:
        assert _groups(ray) == {}
        assert _ours(ray) == []
    eventually(
        lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids),
        "the agents' processes have ended",
    )
    files = [path for path in tmp_path.rglob("*") if path != tmp_path]
    assert {"events", "history", "logs"} <= {path.name for path in files}
    assert [path for path in files if path.lstat().st_mode & 0o077] == [], "others may read"
    leases = list(tmp_path.rglob("*.lease"))
    assert leases
    assert all(b'"ended":true' in path.read_bytes() for path in leases)
    ended = ray_cluster.run("status", "--json")
    assert ended.returncode == 3
    assert "ray-sentinel up" in json.loads(ended.stdout)["error"]


def test_no_cluster_says_what_was_tried(ray_cluster: RayCluster) -> None:
    ended = ray_cluster.run("status", "--json", RAY_ADDRESS="127.0.0.1:9")
    assert ended.returncode == 3
    assert "127.0.0.1:9 (RAY_ADDRESS)" in json.loads(ended.stdout)["error"]

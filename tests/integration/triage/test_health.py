"""Health and inspect on a real cluster, watched and not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.ray_cluster import RayCluster, Watched

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PARTS = {"healthy", "issues", "gpu", "ray", "transport", "checkpoints", "progress", "collectors"}


def test_every_node_of_a_watched_cluster_is_looked_at(
    watched: Watched, ray_cluster: RayCluster, tmp_path: Path
) -> None:
    (tmp_path / "ckpt" / "step_100").mkdir(parents=True)
    (tmp_path / "ckpt" / "step_100" / "model.pt").write_bytes(b"0" * 100)
    ended = ray_cluster.run("health", "--json", "--checkpoints", str(tmp_path / "ckpt"))
    told = json.loads(ended.stdout)
    assert set(told) >= PARTS
    assert ended.returncode == (0 if told["healthy"] else 1)
    assert len(told["nodes"]) == 3
    assert {node["node_id"] for node in told["nodes"]} == {
        node["NodeID"] for node in watched.ray.nodes() if node["Alive"]
    }
    assert told["ray"]["cpus_total"] == 5.0
    assert told["ray"]["nodes"] == 3
    assert told["checkpoints"]["latest_step"] == 100
    assert told["collectors"] is not None

    text = ray_cluster.run("health")
    assert "CPUs allotted" in text.stdout
    assert "\x1b" not in text.stdout

    ended = ray_cluster.run("inspect", "127.0.0.2", "--json")
    view = json.loads(ended.stdout)
    assert view["address"] == "127.0.0.2"
    assert view["versions"]["kernel"] == os.uname().release
    assert ended.returncode in (0, 1)

    ended = ray_cluster.run("inspect", "nowhere", "--json")
    assert ended.returncode == 2
    assert "nowhere" in json.loads(ended.stdout)["error"]


def test_a_cluster_that_nobody_watches_is_looked_at_from_here(ray_cluster: RayCluster) -> None:
    told = json.loads(ray_cluster.run("health", "--json").stdout)
    assert told["collectors"] is None
    assert told["ray"]["nodes"] == 3
    assert any("not watched" in note for note in told["notes"])

"""``ray-sentinel plugins push``: a file on every node of a real cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.ray_cluster import RayCluster, Watched

pytestmark = pytest.mark.integration


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    """What is pushed stays there, and runs beside others' jobs."""
    return watched_by_files


def test_push_reaches_every_node_and_runs(
    watched: Watched, ray_cluster: RayCluster, tmp_path: Path
) -> None:
    file = tmp_path / "pushed.sh"
    file.write_text("#!/bin/sh\necho pushed_value 1\n")
    file.chmod(0o755)
    done = ray_cluster.run("plugins", "push", str(file), "--json", "--timeout", "30")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) == len(watched.status().nodes) == 3
    for row in rows:
        assert row["installed"]
        assert [status["name"] for status in row["collectors"]] == ["pushed"]
        assert row["collectors"][0]["success"] is True


def test_push_refuses_what_is_no_plugin(ray_cluster: RayCluster, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("class A(\n")
    done = ray_cluster.run("plugins", "push", str(file))
    assert done.returncode == 2
    assert "line 1" in done.stderr
    assert ray_cluster.run("plugins", "push", str(tmp_path / "no.py")).returncode == 2

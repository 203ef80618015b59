"""The page of a real coordinator on a real cluster."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.support.browser import rendered
from tests.support.ray_cluster import RayCluster, Watched

pytestmark = pytest.mark.integration


def test_the_coordinator_serves_its_page_and_its_state(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path
) -> None:
    url = watched.status().page
    with urllib.request.urlopen(f"{url}api/v1/status", timeout=30) as answer:
        served = json.load(answer)
    assert len(served["nodes"]) == 3
    asked = ray_cluster.run("status", "--url", url, "--json", RAY_ADDRESS="127.0.0.1:1")
    assert json.loads(asked.stdout)["state"] == served["state"]
    document = rendered(url, tmp_path / "browser")
    for node in served["nodes"]:
        assert node["address"] in document

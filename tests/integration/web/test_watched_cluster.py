"""The page of a real coordinator on a real cluster."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest

from ray_sentinel.actors.messages import Description
from tests.support.browser import rendered
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def watched(watched_by_all: Watched) -> Watched:
    return watched_by_all


def test_the_coordinator_serves_its_page_and_its_state(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path
) -> None:
    url = watched.status().page
    link = ray_cluster.run("status", "--link").stdout.strip()
    assert link.startswith(f"{url}?token=")
    assert f"page: {link}\n" in ray_cluster.run("status", COLUMNS="40").stdout
    assert f"page: {link}\n" in ray_cluster.run("up").stdout
    request = urllib.request.Request(f"{url}api/v1/status")
    request.add_header("Authorization", f"Bearer {link.partition('=')[2]}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        served = json.load(answer)
    assert len(served["nodes"]) == 3
    for asked_by in (url, link):
        asked = ray_cluster.run("status", "--url", asked_by, "--json", RAY_ADDRESS="127.0.0.1:1")
        assert json.loads(asked.stdout)["state"] == served["state"]
        assert "token" not in asked.stdout
    document = rendered(link, tmp_path / "browser")
    for node in served["nodes"]:
        assert node["address"] in document


def test_the_link_outlives_the_coordinator_s_process(
    ray_cluster: RayCluster, watched: Watched
) -> None:
    link = ray_cluster.run("status", "--link").stdout.strip()
    before = watched.ask("describe", Description)
    os.kill(before.pid, signal.SIGKILL)
    eventually(lambda: watched.ask("describe", Description).pid != before.pid, "another life", 60.0)
    assert ray_cluster.run("status", "--link").stdout.strip() == link
    # Whoever kept the link, through a tunnel say, and who finds the page by its file.
    for asked_by in (link, watched.status().page):
        asked = ray_cluster.run("status", "--url", asked_by, "--json", RAY_ADDRESS="127.0.0.1:1")
        assert json.loads(asked.stdout)["page"] == watched.status().page, asked.stderr
    token = link.partition("=")[2]
    for file in watched.log.rglob("*"):
        if file.is_file():
            assert token.encode() not in file.read_bytes(), file

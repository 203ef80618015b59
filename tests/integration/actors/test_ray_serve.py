"""Ray Serve in a watched cluster: its requests are told, and its replicas are no ranks."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.parts import require_module
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

APP = Path(__file__).parents[2] / "support/serve_app.py"
SECONDS = 60.0
"""Ray's nodes gather their metrics every ten seconds."""


@pytest.fixture
def served(ray_cluster: RayCluster, watched_by_files: Watched, tmp_path: Path) -> Iterator[Watched]:
    """Watched, with a deployment."""
    require_module("fastapi", "'ray[serve]'")
    with (tmp_path / "app.log").open("w") as log:
        app = subprocess.Popen(
            [sys.executable, str(APP), ray_cluster.address, str(tmp_path)], stdout=log, stderr=log
        )
    try:
        serves = (tmp_path / "serves").exists
        with contextlib.suppress(AssertionError):
            eventually(lambda: serves() or app.poll() is not None, "it answers or ends", 180.0)
        assert serves(), (tmp_path / "app.log").read_text()
        yield watched_by_files
    finally:
        app.terminate()
        try:
            app.wait(timeout=SECONDS)
        finally:
            app.kill()


RUNNING = 'state="running"'


def requests_on(url: str, name: str, state: str = "") -> dict[str, float]:
    """What a node's :9400 tells of requests, by series."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = (line.rsplit(" ", 1) for line in lines if line.startswith(f"{name}{{"))
    return {series: float(value) for series, value in found if state in series}


def test_requests_that_do_not_end(served: Watched, tmp_path: Path) -> None:
    earlier = {one.id for one in served.ask("incidents", tuple[Incident, ...])}

    def incidents() -> list[Incident]:
        """Those of this job: the ends of earlier tests' jobs may be told late."""
        found = served.ask("incidents", tuple[Incident, ...])
        return [one for one in found if one.job.startswith(APP.stem) and one.id not in earlier]

    def count(*wanted: str) -> float:
        urls = [node.metrics_url for node in served.status().nodes if node.metrics_url]
        told = [series for url in urls for series in requests_on(url, *wanted).items()]
        # Others' engines may have been there before.
        told = [(series, value) for series, value in told if 'job="sglang-' not in series]
        assert all('job="serve-app-Model"' in series for series, _ in told)
        return sum(value for _, value in told)

    # What is usual must be known before anything can be called late.
    ended = "server_requests_finished_total"
    eventually(lambda: count(ended) >= 10, "its requests are told of", SECONDS)
    assert not any("serve-app-Model" in note for note in served.status().notes)
    (tmp_path / "block").touch()
    one = ("server_requests", RUNNING)
    eventually(lambda: count(*one) == 1.0, "the request is seen", SECONDS)

    def noted() -> str:
        return next((n for n in served.status().notes if n.startswith("serve-app-Model: ")), "")

    note = eventually(noted, "it is noted", SECONDS)
    assert "1 running, 0 waiting requests, and no request has made progress for" in note
    (job,) = [one for one in served.status().jobs if not one.ended]
    assert (job.job.rpartition("-")[0], job.ranks) == ("serve_app", ())
    assert {one.role for one in job.members} == {
        "driver",
        "ServeController",
        "ProxyActor",
        "ServeReplica:app:Model",
    }
    (incident,) = eventually(incidents, "the replica is named", SECONDS)
    assert incident.verdict is not None
    (culprit,) = incident.verdict.culprits
    assert (incident.kind, culprit.role) == ("actor-stuck", "ServeReplica:app:Model")
    assert culprit.reason.startswith("sleeping in Model.__call__ (serve_app.py:")
    assert incident.verdict.chain[0].start == "driver"

"""The bundle of a real incident has what its ranks wrote last, from the nodes on which they ran."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.placed_ranks import start_rank_on
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually
from tests.support.watched_job import WatchedJob

pytestmark = pytest.mark.integration


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


def test_a_rank_that_died_is_quoted_from_the_file_that_ray_keeps(
    ray_cluster: RayCluster, watched: Watched
) -> None:
    name = "quoted-job"
    launchers = [
        start_rank_on(watched.ray, address, name, fault, rank, at=100)
        for rank, (address, fault) in enumerate(
            {"127.0.0.2": "exception", "127.0.0.3": "none"}.items()
        )
    ]
    pids = watched.ray.get([launcher.start.remote() for launcher in launchers])
    job = WatchedJob(ray_cluster, watched, name)
    try:
        job.until_training(2)
        incident = eventually(lambda: explained(job), "it has its bundle", 90.0)
    finally:
        with contextlib.suppress(Exception):
            watched.ray.get([launcher.end.remote() for launcher in launchers], timeout=10)
    logs = {log.rank: log for log in incident.logs}
    log = logs[0]
    assert (log.pid, log.ended, log.file) == (pids[0], True, "logs/rank-0.log")
    assert log.telling == "ValueError: no such batch"
    bundle = Path(incident.bundle)
    text = (bundle / log.file).read_text()
    assert "worker-" in text
    assert text.rstrip().endswith("ValueError: no such batch")
    assert incident.verdict is not None
    assert incident.verdict.next_steps[0] == (
        f"Rank 0 on {log.host} ended with: ValueError: no such batch "
        "(logs/rank-0.log in the bundle)"
    )

    def told() -> str | None:
        """The report is written when the incident is told already."""
        report = (bundle / "report.md").read_text()
        return report if f"Last lines of rank 0 on {log.host}" in report else None

    report = eventually(told, "the report quotes it")
    assert "](<logs/rank-0.log>)" in report
    assert '<a href="logs/rank-0.log">' in (bundle / "report.html").read_text()
    stored = json.loads((bundle / "incident.json").read_text())
    assert "logs/rank-0.log" in [one["file"] for one in stored["logs"]]
    shown = ray_cluster.run("incidents", "show", incident.id)
    assert "ValueError: no such batch" in shown.stdout


def explained(job: WatchedJob) -> Incident | None:
    return next((i for i in job.incidents() if i.logs and i.bundle), None)

"""An incident's report says what the job's time series say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

RANK = Path(__file__).parents[2] / "support/shell_rank.py"


@pytest.fixture
def soon(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[Watched]:
    """The cluster watched, its series diagnosed three seconds after a capture."""
    ray_cluster.up(tmp_path / "log", RAY_SENTINEL_CAPTURE__SERIES_SECONDS="3")
    with ray_cluster.connected() as ray:
        yield Watched(ray)
    ray_cluster.down()


def test_the_series_are_diagnosed_into_the_bundle(
    soon: Watched, ray_cluster: RayCluster, tmp_path: Path
) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANK), "diagnosed-job"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ray_cluster.environ(RANK=str(number), WORLD_SIZE="2"),
        )
        for number in range(2)
    ]
    try:

        def moves() -> bool:
            jobs = [job for job in soon.status().jobs if job.job == "diagnosed-job"]
            return bool(jobs) and len(jobs[0].ranks) == 2 and (jobs[0].step or 0) > 5

        eventually(moves, "both ranks take steps")
        os.kill(ranks[0].pid, signal.SIGSTOP)

        def told() -> Path | None:
            incidents = soon.ask("incidents", tuple[Incident, ...])
            bundles = [Path(one.bundle) for one in incidents if one.job == "diagnosed-job"]
            told = [one for one in bundles if "diagnosis" in text(one / "incident.json")]
            return told[0] if told else None

        bundle = eventually(told, "the incident carries a diagnosis", 120)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    said = json.loads((bundle / "incident.json").read_text())
    assert said["culprits"][0]["pid"] == ranks[0].pid
    assert said["diagnosis"]["root_cause"]
    assert said["diagnosis"]["root_cause"] in text(bundle / "diagnosis.md")
    eventually(lambda: "What the time series say" in text(bundle / "report.md"), "in the report")
    assert "What the time series say" in text(bundle / "report.html")
    assert isinstance(json.loads((bundle / "series.json").read_bytes()), list)
    assert (bundle / "diagnosis.html").stat().st_size > 1000


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""

"""Actors that go on after the driver that has made them has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parents[2] / "support" / "detached_job.py"


def test_the_one_that_hangs_is_named(
    ray_cluster: RayCluster, watched_by_files: Watched, tmp_path: Path
) -> None:
    def job() -> JobStatus | None:
        """Once its calls have a rhythm, and its driver has been gone for a while."""
        jobs = [one for one in watched_by_files.status().jobs if one.job.startswith(SCRIPT.stem)]
        alone = (one for one in jobs if {m.role for m in one.members} == {"Gateway", "Scorer"})
        return next((one for one in alone if one.phase == "train" and not one.ended), None)

    try:
        with ray_cluster.driver(SCRIPT, str(tmp_path)) as driver:
            assert driver.wait(60.0) == 0
        seen = eventually(job, "the job is seen to go on", 60.0, every=1.0)
        (tmp_path / "block").touch()

        def incidents() -> list[Incident]:
            found = watched_by_files.ask("incidents", tuple[Incident, ...])
            return [one for one in found if one.job == seen.job]

        (incident,) = eventually(incidents, "it is named", 180.0, every=1.0)
    finally:
        (tmp_path / "end").touch()
    assert incident.verdict is not None
    (culprit,) = incident.verdict.culprits
    assert (incident.kind, culprit.role) == ("actor-stuck", "Scorer")
    assert culprit.reason.startswith("sleeping in Scorer.score (detached_job.py:")
    assert incident.verdict.chain[0].start == f"{tmp_path.name}-Gateway"
    eventually(lambda: job() is None, "the job is over", 60.0, every=1.0)

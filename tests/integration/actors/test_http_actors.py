"""Actors that wait for the HTTP server of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parents[2] / "support" / "http_actors_job.py"
BUSY_SECONDS = 24.0
"""Longer than may be silent, whatever is usual."""


@pytest.fixture(scope="module")
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


def job(watched: Watched, driver: int) -> JobStatus | None:
    """The one of the driver with this pid, once its calls have a rhythm."""
    jobs = (one for one in watched.status().jobs if driver in {m.pid for m in one.members})
    return next((one for one in jobs if one.phase == "train"), None)


@pytest.mark.parametrize("how", ["thread", "process"])
def test_the_server_that_does_not_answer_is_named_and_none_that_works(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path, how: str
) -> None:
    def incidents() -> list[Incident]:
        found = watched.ask("incidents", tuple[Incident, ...])
        return [one for one in found if one.job == name]

    with ray_cluster.driver(SCRIPT, str(tmp_path), how) as driver:
        seen = eventually(
            lambda: job(watched, driver.pid), "the job is seen to work", 90.0, every=1.0
        )
        name, scorer = seen.job, next(one for one in seen.members if one.role == "Scorer")
        (tmp_path / "busy").touch()

        def silent() -> bool:
            now = job(watched, driver.pid)
            assert incidents() == []
            return now is not None and (now.step_age_seconds or 0.0) > BUSY_SECONDS

        eventually(silent, "a request takes long", 3 * BUSY_SECONDS, every=1.0)
        (tmp_path / "block").touch()
        (tmp_path / "busy").unlink()
        (incident,) = eventually(incidents, "it is named", 90.0, every=1.0)
    assert incident.verdict is not None
    (culprit,) = incident.verdict.culprits
    assert (incident.kind, culprit.role, culprit.actor) == ("actor-stuck", "Scorer", "Scorer 0")
    assert (culprit.pid == scorer.pid) == (how == "thread")
    assert culprit.reason.startswith("sleeping in score (http_actors_job.py:")
    first, last = incident.verdict.chain
    assert (first.start, last.end, last.how) == ("driver", "Scorer 0", "an answer of")
    assert first.end.startswith("Rollout.generate at Rollout ")

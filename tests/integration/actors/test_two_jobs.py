"""Two jobs in one watched cluster, with the same ranks on the same nodes."""

from __future__ import annotations

import pytest

from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually
from tests.support.watched_job import WatchedJob, culprits

pytestmark = pytest.mark.integration


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


def go_on(job: WatchedJob, *ranks: int) -> None:
    """Those ranks take many more steps."""
    before = job.steps()
    eventually(
        lambda: all(job.steps().get(rank, 0) > before[rank] + 60 for rank in ranks),
        f"{job.name} goes on",
    )


def test_only_the_rank_of_the_job_that_hangs_is_named(
    ray_cluster: RayCluster, watched: Watched
) -> None:
    with (
        WatchedJob(ray_cluster, watched, "well") as well,
        WatchedJob(ray_cluster, watched, "ill") as ill,
    ):
        well.start("none", "none", "none")
        ill.start("none", "sigstop", "none", at=120)
        well.until_training(3)
        ill.until_training(3)
        incident = ill.verdict()
        assert (incident.job, incident.kind) == ("ill", "rank-stopped")
        assert culprits(incident) == [(1, ill.ranks[1].pid)]
        go_on(well, 0, 1, 2)
        assert well.incidents() == []
        states = {job.job: job.state for job in watched.status().jobs}
        assert (states["well"], states["ill"]) == ("healthy", "hung")
        # The other job's end is told as its own, and changes nothing here.
        well.close()
        eventually(lambda: (job := well.status()) and job.ended, "the other job has ended")
        assert [one.id for one in ill.incidents()] == [incident.id]


def test_a_fault_in_each(ray_cluster: RayCluster, watched: Watched) -> None:
    with (
        WatchedJob(ray_cluster, watched, "one") as one,
        WatchedJob(ray_cluster, watched, "other") as other,
    ):
        one.start("sigstop", "none", at=120)
        other.start("none", "none", "sigkill", at=120)
        one.until_training(2)
        other.until_training(3)
        assert culprits(one.verdict()) == [(0, one.ranks[0].pid)]
        assert culprits(other.verdict()) == [(2, other.ranks[2].pid)]
        assert (one.verdict().kind, other.verdict().kind) == ("rank-stopped", "rank-dead")

"""The log folder of a watched cluster hangs, as on a dead NFS server, and comes back."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.hanging_disk import hanging_disk
from tests.support.ray_cluster import ADDRESSES, RayCluster, Watched
from tests.support.waiting import eventually
from tests.support.watched_job import WatchedJob, culprits

pytestmark = pytest.mark.integration


def all_report(watched: Watched) -> bool:
    return all((node.snapshot_age_seconds or 0.0) < 3.0 for node in watched.status().nodes)


@pytest.mark.timeout(300)
def test_agents_report_and_verdicts_come_while_the_log_folder_hangs(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    with hanging_disk(tmp_path) as disk:
        ray_cluster.up(disk.path / "log")
        try:
            with ray_cluster.connected() as ray:
                watched = Watched(ray)
                with WatchedJob(ray_cluster, watched, "hung-disk") as job:
                    job.start("none", "none")
                    job.until_training(2)
                    disk.hang()
                    address = ADDRESSES[-1]  # not the node whose agent watches these ranks
                    agent = watched.agents()[address]
                    os.kill(agent.pid, signal.SIGKILL)
                    job.ranks[1].send_signal(signal.SIGSTOP)
                    incident = job.verdict()
                    assert incident.kind == "rank-stopped"
                    assert culprits(incident) == [(1, job.ranks[1].pid)]
                    reached(job, "explained", 60.0)
                    job.ranks[1].send_signal(signal.SIGCONT)
                    reached(job, "resolved", 20.0)

                    def starts() -> bool:
                        again = watched.agents()[address]
                        return again.pid != agent.pid and again.age_seconds < 3.0

                    eventually(starts, "an agent starts and reports without the folder", 90.0)
                    status = watched.status()
                    notes = "\n".join(status.notes)
                    assert f"{disk.path / 'log/incidents'} does not answer" in notes
                    assert "files go to" in notes, "the agent that was started then"
                    eventually(lambda: all_report(watched), "all agents report", 30.0)

                    disk.answer()
                    bundled = eventually(lambda: late(job), "the bundle is written late", 30.0)
                    folder = disk.behind / "log/incidents" / Path(bundled.bundle).name
                    assert (folder / "incident.json").exists()
                    assert list(folder.glob("pyspy_*")), "with the stacks of then"
        finally:
            disk.answer()
            ray_cluster.down()


def reached(job: WatchedJob, state: str, seconds: float) -> None:
    """Wait until the job's incident is in that state."""
    eventually(lambda: job.incidents()[0].state == state, f"it is {state}", seconds)


def late(job: WatchedJob) -> Incident | None:
    return next((one for one in job.incidents() if one.bundle), None)

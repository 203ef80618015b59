"""A job of verl's own single controller, on CPUs, in which one colocated worker stands still."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.parts import require_library
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(360)]

SCRIPT = Path(__file__).parents[2] / "support" / "verl_job.py"
NAME = "tinyWorkerDict_0:1"
STEPS = 8
"""Before rank 1 stands still: enough for its methods to be known."""


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


def test_the_worker_that_stands_still_in_its_rollout_is_named(
    ray_cluster: RayCluster, watched: Watched
) -> None:
    path = os.pathsep.join((require_library("verl"), os.environ.get("PYTHONPATH", "")))
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), str(STEPS)],
        env=ray_cluster.environ(PYTHONPATH=path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as driver:
        try:
            incident = eventually(lambda: _about(watched, NAME), "it is named", 240.0, every=1.0)
        finally:
            driver.kill()
    assert incident.verdict is not None
    (culprit,) = incident.verdict.culprits
    assert (culprit.rank, culprit.role) == (1, "WorkerDict")
    assert culprit.method == "WorkerDict.rollout_generate_sequences"
    assert culprit.reason.startswith("sleeping in Rollout.reward (verl_job.py:")
    assert incident.verdict.chain[0].start == "driver"


def _about(watched: Watched, actor: str) -> Incident | None:
    """The incident that names an actor, be it of its Ray job or of its ranks."""
    for incident in watched.ask("incidents", tuple[Incident, ...]):
        if incident.verdict and any(one.actor == actor for one in incident.verdict.culprits):
            return incident
    return None

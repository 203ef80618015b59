"""An actor waits for the inference engine below it, and a driver for the actor."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).parents[2] / "support" / "engine_actor_job.py"
START_SECONDS = 300.0
"""A driver, an actor, a front end and two ranks import Ray or torch one after the other, on however
few CPUs; only then is there anything to see."""


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


@contextlib.contextmanager
def served(cluster: RayCluster, folder: Path) -> Iterator[None]:
    """The job runs; ended with its engine."""
    folder.mkdir()
    with cluster.driver(SCRIPT, str(folder)):
        try:
            yield
        finally:
            for path in (*folder.glob("rank-*"), *folder.glob("detokenizer")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(path.read_text()), signal.SIGKILL)


def test_the_actor_above_an_engine_that_hangs_is_named(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    earlier = {one.id for one in watched.ask("incidents", tuple[Incident, ...])}

    def incidents() -> list[Incident]:
        """Those of this job and its engine: the ends of earlier tests' jobs may be told late."""
        found = watched.ask("incidents", tuple[Incident, ...])
        ours = [one for one in found if one.job.startswith((SCRIPT.stem, "sglang-"))]
        return [one for one in ours if one.id not in earlier]

    with served(ray_cluster, folder):
        eventually((folder / "served").exists, "a request is answered", START_SECONDS, every=0.5)
        eventually(lambda: works(watched, folder), "the engine is seen at work", 120.0, every=1.0)
        assert incidents() == []
        (folder / "lose").touch()
        eventually(lambda: any(one.verdict for one in incidents()), "a verdict", 120.0, every=1.0)
        (incident,) = incidents()
    assert (incident.kind, incident.rule) == ("stall", "stall.requests")
    assert incident.verdict is not None
    (culprit,) = incident.verdict.culprits
    assert (culprit.role, culprit.method) == ("EngineServer", "EngineServer.generate")
    assert culprit.reason.startswith("its engine sglang-")
    assert culprit.reason.endswith("1 waiting requests, which get no further")
    (link,) = incident.verdict.chain
    assert (link.start, link.end) == ("driver", "EngineServer.generate at EngineServer 0")


def works(watched: Watched, folder: Path) -> bool:
    """Whether the job of the engine's ranks is seen to train, and has told its requests."""
    pids = {int(path.read_text()) for path in folder.glob("rank-*")}
    return any(
        job.requests and job.phase == "train" and pids == {rank.pid for rank in job.ranks}
        for job in watched.status().jobs
        if job.job.startswith("sglang-")
    )

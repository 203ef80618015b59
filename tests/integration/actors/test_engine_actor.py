"""An actor waits for the inference engine below it, and a driver for the actor."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(360)]

SCRIPT = Path(__file__).parents[2] / "support" / "engine_actor_job.py"


@pytest.fixture
def watched(ray_cluster: RayCluster, tmp_path: Path) -> Iterator[Watched]:
    """Watched, and requests need not wait for a minute to be missed."""
    settings = tmp_path / "hasty.toml"
    settings.write_text('[rules."stall.requests"]\nseconds = 20.0\n')
    ray_cluster.up(tmp_path / "log", RAY_SENTINEL_CONFIG=str(settings))
    with ray_cluster.connected() as ray:
        yield Watched(ray)
    ray_cluster.down()


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
    with served(ray_cluster, folder):
        eventually(lambda: engine_of(watched), "the engine is seen at work", 180.0, every=1.0)
        assert watched.ask("incidents", tuple[Incident, ...]) == ()
        (folder / "lose").touch()
        incident = eventually(lambda: told(watched), "it is named", 120.0, every=1.0)
        (incident,) = watched.ask("incidents", tuple[Incident, ...])
    assert (incident.kind, incident.rule) == ("stall", "stall.requests")
    assert incident.verdict is not None
    (culprit,) = incident.verdict.culprits
    assert (culprit.role, culprit.method) == ("EngineServer", "EngineServer.generate")
    assert culprit.reason.startswith("its engine sglang-")
    assert culprit.reason.endswith("1 waiting requests, which get no further")
    (link,) = incident.verdict.chain
    assert (link.start, link.end) == ("driver", "EngineServer.generate at EngineServer 0")


def engine_of(watched: Watched) -> JobStatus | None:
    """The engine's job, once it is seen to train and to have told its requests."""
    return next(
        (
            job
            for job in watched.status().jobs
            if job.job.startswith("sglang-") and job.requests and job.phase == "train"
        ),
        None,
    )


def told(watched: Watched) -> Incident | None:
    """The first incident."""
    return next(iter(watched.ask("incidents", tuple[Incident, ...])), None)

"""Stand-ins of OpenRLHF and SkyRL, made of real actors: steps, ranks, and who stands still."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ray_sentinel.api import Context, NoData
from ray_sentinel.model.incident import Incident
from ray_sentinel_plugins.train_logs import TrainLogsCollector
from tests.support.found_job import job_of, training
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(360)]

SUPPORT = Path(__file__).parents[2] / "support"
STEPS = 8
"""In which all is well: enough for the methods to be known."""


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


@contextmanager
def job(cluster: RayCluster, folder: Path, script: str) -> Iterator[Path]:
    """Runs the stand-in; yields the driver's output."""
    folder.mkdir()
    log = folder / "driver.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(SUPPORT / script), str(folder)],
            env=cluster.environ(OMP_NUM_THREADS="1"),
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as driver,
    ):
        try:
            yield log
        finally:
            driver.kill()


@pytest.mark.parametrize(
    ("script", "role", "method", "place"),
    [
        ("openrlhf_job.py", "RolloutRayActor", "generate_responses", "RolloutRayActor.reward"),
        ("skyrl_job.py", "VLLMServerActor", "generate", "VLLMServerActor.detokenize"),
    ],
    ids=["OpenRLHF", "SkyRL"],
)
def test_a_rollout_that_stands_still_is_named_by_its_role(
    ray_cluster: RayCluster,
    watched: Watched,
    tmp_path: Path,
    script: str,
    role: str,
    method: str,
    place: str,
) -> None:
    folder = tmp_path / "job"
    with ray_cluster.printing(), job(ray_cluster, folder, script) as log:
        pids = training(folder, 2, log)
        options = TrainLogsCollector.Options(files=(str(log),))
        collector = TrainLogsCollector(Context(options=options))
        eventually(lambda: step_of(collector) >= STEPS, "the steps are read", 120.0, every=0.5)
        ranks = job_of(watched, pids)
        assert ranks.world_size == 2
        names = (script.removesuffix(".py"), ranks.job)
        assert incidents(watched, *names) == []
        (folder / "stuck").touch()
        incident = eventually(
            lambda: next(iter(incidents(watched, *names)), None), "it is named", 120.0, every=1.0
        )
    assert incident.verdict is not None
    (culprit,) = incident.verdict.culprits
    assert (culprit.role, culprit.actor, culprit.rank) == (role, f"{role} 1", None)
    assert culprit.method == f"{role}.{method}"
    assert f"in {place} ({script}:" in culprit.reason
    assert incident.verdict.chain[0].start == "driver"


def step_of(collector: TrainLogsCollector) -> float:
    """The last that the job's lines tell."""
    try:
        found = [one.value for one in collector.collect() if ("name", "log_step") in one.labels]
    except NoData:
        return 0.0
    return max(found, default=0.0)


def incidents(watched: Watched, *names: str) -> list[Incident]:
    """Of the jobs whose names begin so."""
    found = watched.ask("incidents", tuple[Incident, ...])
    return [incident for incident in found if incident.job.startswith(names)]

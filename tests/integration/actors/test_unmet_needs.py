"""What a job waits for and the cluster does not give: a runtime environment that is being built or
is stuck, room in a full placement group, a label that no node has; by version 2 of Ray's
autoscaler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

WAITS = """
import sys, ray
ray.init()
@ray.remote(num_cpus=1, runtime_env={sys.argv[1]: sys.argv[2]})
class Newcomer:
    def hello(self): return 1
ray.get(Newcomer.remote().hello.remote())
"""
PLUGIN = {"class": "tests.support.slow_environment.SlowEnvironment"}
FULL = """
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
ray.init()
group = placement_group([{"CPU": 2}], name="small")
ray.get(group.ready())
there = PlacementGroupSchedulingStrategy(group)
@ray.remote(num_cpus=1, scheduling_strategy=there)
class Part:
    def ok(self): return 1
parts = [Part.remote() for _ in range(2)]
ray.get([part.ok.remote() for part in parts])
ray.get(Part.remote().ok.remote())
"""
LABELLED = """
import ray
ray.init()
@ray.remote(num_cpus=1, label_selector={"kind": "h100"})
def score(): return 1
ray.get(score.remote())
"""
LARGE = """
import ray, numpy, time
ray.init()
@ray.remote(num_cpus=0, resources={"small": 0.1})
def keep(large, seconds): time.sleep(seconds)
half = numpy.zeros(40_000_000, dtype=numpy.uint8)
first = keep.remote(ray.put(half), 1000)
time.sleep(3)
ray.get(keep.remote(ray.put(half), 1))
"""
SMALL, SMALL_STORE = "127.0.0.5", 80_000_000
"""A node with an object store of so many bytes; Ray gives 70 % of them to arguments of tasks."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_enable_autoscaler_v2", "1")
        patch.setenv("RAY_RUNTIME_ENV_PLUGINS", json.dumps([PLUGIN]))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[3]), prepend=os.pathsep)
        cluster = RayCluster(addresses=("127.0.0.2",), autoscaler=True)
        cluster.up(tmp_path_factory.mktemp("log"))
        yield cluster
        cluster.down()
        cluster.stop()


@contextmanager
def waiting(cluster: RayCluster, field: str, value: str) -> Iterator[subprocess.Popen[bytes]]:
    job = subprocess.Popen([sys.executable, "-c", WAITS, field, value], env=cluster.environ())
    try:
        yield job
    finally:
        job.kill()
        job.wait()


def said(cluster: RayCluster, command: str) -> str:
    return " ".join(cluster.run(command).stdout.split())


def until(cluster: RayCluster, command: str, what: str) -> str:
    """What the command says once it says that. The coordinator is asked first, which is cheaper."""
    with cluster.connected() as ray:
        watched = Watched(ray)
        if command == "status":
            eventually(lambda: any(job.waits for job in watched.status().jobs), what, 120.0)
        else:
            eventually(lambda: watched.ask("incidents", tuple[Incident, ...]), what, 120.0)
    seen: list[str] = []

    def told() -> bool:
        seen.append(said(cluster, command))
        return what in seen[-1]

    try:
        eventually(told, what, 120.0, every=2.0)
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen[-1]}") from None
    return seen[-1]


@pytest.mark.timeout(240)
def test_what_is_being_built_is_told_and_accuses_nobody(
    cluster: RayCluster, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    with waiting(cluster, "slow_environment", str(there)) as job:
        text = until(cluster, "status", "for the runtime environment (slow_environment) on ")
        assert "to be built" in text
        assert "which goes on, last seen being built; its log ends with" in text
        assert "hf_abcdef" not in text
        assert "runtime environment" not in said(cluster, "incidents")
        there.touch()
        assert job.wait(60.0) == 0


@pytest.mark.timeout(240)
def test_an_agent_of_rays_that_waits_for_a_download_is_stuck(
    cluster: RayCluster, tmp_path: Path
) -> None:
    package = tmp_path / "packages.zip"
    os.mkfifo(package)
    with waiting(cluster, "working_dir", f"file://{package}"):
        text = until(cluster, "incidents", "is not being built any more")
        assert "the runtime environment (working_dir: packages.zip) on" in text
        assert "answers nobody and does not move; its log ends with 'Downloading package" in text
        assert "free" not in text
        package.write_bytes(b"")  # who reads it goes on


@pytest.mark.timeout(240)
def test_a_full_group_and_a_label_that_no_node_has(cluster: RayCluster) -> None:
    wanted = (
        "nothing in the cluster has room for 1 CPU in placement group small (2 CPU); 2 actors Part "
        "of job-",
        "hold 2 CPU; 1 process waits",
        "there can never be a node with 1 CPU free, labelled kind=h100: no node has the label "
        "kind=h100; no autoscaler adds nodes; 1 process waits",
    )
    environ, seen = cluster.environ(), [""]

    def told() -> bool:
        seen.append(" ".join(cluster.run("incidents").stdout.split()))
        return all(text in seen[-1] for text in wanted)

    with cluster.connected() as ray:
        incidents = partial(Watched(ray).ask, "incidents", tuple[Incident, ...])
        both = len(incidents()) + 2
        jobs = [
            subprocess.Popen([sys.executable, "-c", job], env=environ) for job in (FULL, LABELLED)
        ]
        try:
            eventually(lambda: len(incidents()) >= both, "both are known", 120.0, every=0.5)
            eventually(told, "both are told", 30.0, every=2.0)
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen[-1]}") from None
        finally:
            for job in jobs:
                job.kill()
                job.wait()


@pytest.mark.timeout(240)
def test_a_node_whose_object_store_has_no_room_for_an_argument(cluster: RayCluster) -> None:
    cluster.add(SMALL, resources={"small": 1}, object_store_memory=SMALL_STORE)
    job = subprocess.Popen([sys.executable, "-c", LARGE], env=cluster.environ())
    try:
        with cluster.connected() as ray:
            watched = Watched(ray)

            def of_it() -> list[Incident]:
                told = watched.ask("incidents", tuple[Incident, ...])
                return [one for one in told if one.kind == "object-store"]

            (told, *_) = eventually(of_it, "it is known", 120.0)
            assert "no room for the arguments of keep" in told.summary
    finally:
        job.kill()
        job.wait()
        cluster.retire(SMALL)

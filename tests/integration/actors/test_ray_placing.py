"""A full placement group, a label that no node has, and version 2 of Ray's autoscaler."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_enable_autoscaler_v2", "1")
        cluster = RayCluster(addresses=("127.0.0.2",), autoscaler=True)
    cluster.up(tmp_path_factory.mktemp("log"))
    yield cluster
    cluster.down()
    cluster.stop()


@pytest.mark.timeout(240)
def test_a_full_group_and_a_label_that_no_node_has(cluster: RayCluster) -> None:
    wanted = (
        "nothing in the cluster has room for 1 CPU in placement group small (2 CPU); 2 actors Part "
        "of job-",
        "hold 2 CPU; 1 process waits",
        "there can never be a node with 1 CPU free, labelled kind=h100: no node has the label "
        "kind=h100; no autoscaler adds nodes; 1 process waits",
    )
    environ = cluster.environ()
    jobs = [subprocess.Popen([sys.executable, "-c", job], env=environ) for job in (FULL, LABELLED)]
    seen: list[str] = [""]

    def told() -> bool:
        seen.append(" ".join(cluster.run("incidents").stdout.split()))
        return all(text in seen[-1] for text in wanted)

    try:
        with cluster.connected() as ray:
            incidents = partial(Watched(ray).ask, "incidents", tuple[Incident, ...])
            eventually(lambda: len(incidents()) >= len(jobs), "both are known", 120.0, every=0.5)
        eventually(told, "both are told", 30.0, every=2.0)
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen[-1]}") from None
    finally:
        for job in jobs:
            job.kill()
            job.wait()

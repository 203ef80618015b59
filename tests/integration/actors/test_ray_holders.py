"""Who holds what a Ray job lacks, and what no node can ever hold, on a real cluster."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

HOLDS = """
import ray
from ray.util.placement_group import placement_group
ray.init(namespace="holds")
@ray.remote(num_cpus=2, lifetime="detached", name="keeper")
class Keeper:
    def ok(self): return 1
ray.get(Keeper.remote().ok.remote())
group = placement_group([{"CPU": 2}], name="kept", lifetime="detached")
ray.get(group.ready())
"""
LETS_GO = """
import ray
from ray.util.placement_group import get_placement_group, remove_placement_group
ray.init(namespace="holds")
ray.kill(ray.get_actor("keeper"))
remove_placement_group(get_placement_group("kept"))
"""
WAITS = """
import sys, ray
from ray.util.placement_group import placement_group
ray.init(namespace="waits")
@ray.remote(num_cpus=2)
def two(): return 1
if sys.argv[1] == "held":
    ray.get(two.remote())
else:
    placement_group([{"CPU": 1}] * 4, name="wide", strategy="STRICT_SPREAD").wait(600)
"""


@pytest.mark.timeout(240)
def test_an_orphan_and_a_group_for_more_nodes_than_there_are(
    ray_cluster: RayCluster, watched_by_files: Watched
) -> None:
    environ = ray_cluster.environ()
    incidents = partial(watched_by_files.ask, "incidents", tuple[Incident, ...])
    earlier = len(incidents())
    subprocess.run([sys.executable, "-c", HOLDS], env=environ, check=True, timeout=90)
    waiting = [
        subprocess.Popen([sys.executable, "-c", WAITS, what], env=environ)
        for what in ("held", "wide")
    ]
    seen: dict[str, Any] = {}

    def both() -> bool:
        seen["said"] = said = ray_cluster.run("incidents").stdout
        return "keeper" in said and "STRICT_SPREAD" in said

    try:
        # The command costs more than the coordinator's answer.
        new = earlier + len(waiting)
        eventually(lambda: len(incidents()) >= new, "both are known", 120.0, every=0.5)
        eventually(both, "both are told", 60.0, every=2.0)
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen}") from None
    finally:
        for process in waiting:
            process.kill()
            process.wait()
        subprocess.run([sys.executable, "-c", LETS_GO], env=environ, check=True, timeout=90)
    said = " ".join(str(seen["said"]).split())
    assert "(an orphan: detached, and its job is over) holds 2 CPU" in said
    assert "the placement group kept of" in said
    assert (
        "STRICT_SPREAD wants 4 nodes, and 3 could hold a bundle; no autoscaler adds nodes" in said
    )

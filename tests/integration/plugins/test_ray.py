"""The collector of Ray on a real cluster, started below its raylets as the agent's are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.ray_cluster import RayCluster

pytestmark = pytest.mark.integration

# A driver with actors that end in different ways, demands that nobody can meet, and the collector
# run by tasks on the head and on another node.
DRIVER = """
import json, os, signal, subprocess, sys, time
import ray
ray.init(log_to_driver=False, logging_level="ERROR")

@ray.remote(num_cpus=0)
class Actor:
    def pid(self): return os.getpid()
    def leave(self): sys.exit(0)

@ray.remote(num_cpus=0)
class Broken:
    def __init__(self): raise ValueError("no")

@ray.remote(num_cpus=64, num_gpus=4)
def impossible(): pass

@ray.remote(num_cpus=1)
def hold(path):
    while not os.path.exists(path): time.sleep(0.05)

@ray.remote(num_cpus=0)
def collect():
    command = [sys.executable, "-m", "ray_sentinel.cli.main", "collect", "ray", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout)

done = os.path.join(sys.argv[1], "done")
actors = {name: Actor.remote() for name in ("leave", "killed", "unwanted", "well")}
pids = {name: ray.get(actor.pid.remote()) for name, actor in actors.items()}
actors["leave"].leave.remote()
os.kill(pids["killed"], signal.SIGKILL)
ray.kill(actors["unwanted"])
broken, waiting = Broken.remote(), [impossible.remote() for _ in range(3)]
held = hold.options(resources={"node:127.0.0.2": 0.001}).remote(done)
head = collect.options(resources={"node:__internal_head__": 0.001})
other = collect.options(resources={"node:127.0.0.2": 0.001})
end = time.monotonic() + 60
def enough(found):
    text = json.dumps(found)
    return "creation_task_failure" in text and "SYSTEM_ERROR" in text and "12.0" in text
while not enough(found := ray.get(head.remote())) and time.monotonic() < end:
    time.sleep(0.2)
print(json.dumps([found, ray.get(other.remote())]))
open(done, "w").close()
ray.get(held)
"""


def series(found: dict[str, Any]) -> dict[tuple[str, ...], float]:
    """(Name, label values but the host's) → value."""
    return {
        (family["name"], *[v for k, v in sample["labels"].items() if k != "host"]): sample["value"]
        for family in found["families"]
        for sample in family["samples"]
    }


def test_resources_demands_and_dead_actors(ray_cluster: RayCluster, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        env=ray_cluster.environ(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    head, other = json.loads(done.stdout.splitlines()[-1])
    assert other["skipped"] == "the head's agent asks for the whole cluster"
    found = series(head)
    assert found["ray_cluster_nodes", "RUNNING"] + found.get(("ray_cluster_nodes", "IDLE"), 0) == 3
    assert found["ray_cluster_resource", "127.0.0.2", "CPU"] == 2
    assert found["ray_cluster_resource_used", "127.0.0.2", "CPU"] == 1
    assert found["ray_cluster_resource_used", "127.0.0.3", "CPU"] == 0
    assert found["ray_cluster_resource_asked", "CPU"] == 3 * 64
    assert found["ray_cluster_resource_asked", "GPU"] == 3 * 4
    dead = {key[1]: value for key, value in found.items() if key[0] == "ray_cluster_dead_actors"}
    for cause in ("SYSTEM_ERROR", "INTENDED_USER_EXIT", "RAY_KILL", "creation_task_failure"):
        assert dead[cause] >= 1, cause
    assert found["ray_cluster_actors", "DEAD"] == sum(dead.values())
    assert found["ray_cluster_actors", "ALIVE"] >= 1
    assert not [key for key in found if "_group_" in " ".join(key) or "node:" in " ".join(key)]

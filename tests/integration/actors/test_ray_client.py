"""Drivers and commands that are connected by Ray Client (``ray://``), from outside the cluster."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.parts import require_module
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

DRIVER = """
    import json, sys
    import ray, ray_sentinel
    url, log_dir = sys.argv[1:]
    ray.init(url, log_to_driver=False)

    @ray.remote
    class Trainer:
        def __init__(self):
            self.steps = 0
        def step(self):
            self.steps += 1
            return self.steps

    trainer = Trainer.remote()
    before = ray.get(trainer.step.remote())
    sentinel = ray_sentinel.attach(config={"log_dir": log_dir})
    watched = sentinel.wait(60)
    after = [ray.get(trainer.step.remote()) for _ in range(3)]
    status = sentinel.status() if watched else None
    health = sentinel.health() if watched else None
    print(json.dumps({
        "watched": watched,
        "problems": sentinel.problems,
        "steps": [before, *after],
        "nodes": len(status.nodes) if status else 0,
        "jobs": [job.job for job in status.jobs] if status else [],
        "gpu": health is not None,
    }))
"""


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[RayCluster, str]]:
    """A cluster of two nodes, and the address of its Ray Client server."""
    require_module("grpc", "'ray[client]'")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.MonkeyPatch.context() as environ:
        # Else one in some clients is not served: ray-project/ray#63202.
        environ.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
        cluster = RayCluster(addresses=("127.0.0.2",), client_port=port)
    url = f"ray://127.0.0.1:{port}"

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(listens, "the Ray Client server listens", 60.0)
        yield cluster, url
    finally:
        cluster.stop()


def outside(cluster: RayCluster) -> dict[str, str]:
    """The environment of a process that was not told of the cluster."""
    return {key: value for key, value in cluster.environ().items() if key != "RAY_ADDRESS"}


def command(
    served: tuple[RayCluster, str], *arguments: str, url: str = ""
) -> subprocess.CompletedProcess[str]:
    cluster, known = served
    return subprocess.run(
        [
            *(sys.executable, "-m", "ray_sentinel.cli.main"),
            *(*arguments, "--address", url or known, "--json"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env=outside(cluster),
        check=False,
    )


def test_a_driver_attaches(served: tuple[RayCluster, str], tmp_path: Path) -> None:
    cluster, url = served
    try:
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(DRIVER), url, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=150,
            env=outside(cluster),
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        said = json.loads(ended.stdout.splitlines()[-1])
        assert said["watched"], said["problems"]
        assert said["problems"] == []
        assert said["steps"] == [1, 2, 3, 4], "the driver's own job goes on"
        assert said["nodes"] == 2
        assert "default" not in said["jobs"], "the driver itself is no rank"
        # The driver and its job are gone; what watches stays.
        with cluster.connected() as ray:
            watched = Watched(ray)
            eventually(
                lambda: len(watched.status().nodes) == 2 and not watched.status().unwatched,
                "both nodes are still watched",
            )
    finally:
        cluster.down()


def test_commands(served: tuple[RayCluster, str], tmp_path: Path) -> None:
    cluster, _ = served
    unwatched = command(served, "status")
    assert unwatched.returncode == 3, unwatched.stdout + unwatched.stderr
    assert "ray-sentinel up" in json.loads(unwatched.stdout)["error"]
    try:
        up = command(served, "up", "--log-dir", str(tmp_path))
        assert up.returncode == 0, up.stdout + up.stderr
        told = json.loads(up.stdout)
        assert (told["created"], len(told["nodes"]), told["unwatched"]) == (True, 2, [])
        status = command(served, "status")
        assert status.returncode == 0, status.stdout + status.stderr
        assert len(json.loads(status.stdout)["nodes"]) == 2
        health = command(served, "health")
        assert health.returncode in (0, 1), health.stdout + health.stderr
        assert "healthy" in json.loads(health.stdout)
        down = command(served, "down")
        assert down.returncode == 0, down.stdout + down.stderr
        assert json.loads(down.stdout)["left"] == []
    finally:
        cluster.down()


def test_an_address_where_no_ray_client_is_served(served: tuple[RayCluster, str]) -> None:
    cluster, _ = served
    nobody = command(served, "status", url="ray://127.0.0.1:9")
    assert nobody.returncode == 3, nobody.stdout + nobody.stderr
    assert "ray://127.0.0.1:9" in json.loads(nobody.stdout)["error"]
    control_store = f"ray://{cluster.address}"
    other = command(served, "status", url=control_store)
    assert other.returncode == 3, other.stdout + other.stderr
    assert control_store in json.loads(other.stdout)["error"]

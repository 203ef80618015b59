"""The embedded history of a real cluster that has no Prometheus."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.diagnose.series import Selector
from ray_sentinel.store.history.source import HistorySource, newest
from tests.support.ray_cluster import RayCluster, Watched, eventually

pytestmark = pytest.mark.integration


def samples(path: Path, name: str) -> dict[str, list[float]]:
    """Host → the moments of its samples."""
    source = HistorySource.open(path)
    try:
        found = source.samples(Selector(name), 0, 1e12)
        return {series.labels["host"]: series.times.tolist() for series in found}
    finally:
        source.close()


def hosts_in(folder: Path, name: str, least: int = 1) -> set[str]:
    files = sorted(folder.glob("history/series-*.db"), key=newest)
    found = samples(files[-1], name) if files else {}
    return {host for host, times in found.items() if len(times) >= least}


def all_hosts(watched: Watched) -> set[str]:
    eventually(lambda: len(watched.status().nodes) == 3, "three nodes report")
    return {node.host for node in watched.status().nodes}


@pytest.fixture(scope="module")
def watch(
    ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Watched, contextlib.ExitStack]]:
    """Of both tests; the second ends it by what comes with it."""
    log = tmp_path_factory.mktemp("watched") / "log"
    ray_cluster.up(log)
    with contextlib.ExitStack() as undo:
        undo.callback(ray_cluster.down)
        yield Watched(undo.enter_context(ray_cluster.connected()), log), undo


@pytest.mark.timeout(300)
def test_every_node_is_in_it_and_diagnose_reads_it(
    watch: tuple[Watched, contextlib.ExitStack], ray_cluster: RayCluster, tmp_path: Path
) -> None:
    watched, _ = watch
    log_dir = watched.log
    nodes = all_hosts(watched)
    eventually(lambda: hosts_in(log_dir, "hw_load1", 3) == nodes, "all nodes in the file", 120.0)
    (tmp_path / "now.db").write_bytes(
        watched.ray.get(_coordinator(watched.ray).history.remote(), timeout=30)
    )
    assert samples(tmp_path / "now.db", "hw_mem_total_bytes").keys() == nodes

    done = ray_cluster.run("diagnose", str(log_dir), "--json")
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert found["window"][1] > found["window"][0] > 1e9
    assert "history" in json.dumps(found)
    page = watched.status().page
    by_page = ray_cluster.run("diagnose", page, "--json")
    assert by_page.returncode == done.returncode, by_page.stderr
    assert json.loads(by_page.stdout)["window"][1] >= found["window"][1]


def test_it_outlives_a_coordinator_that_is_killed_and_the_watch(
    watch: tuple[Watched, contextlib.ExitStack], ray_cluster: RayCluster
) -> None:
    watched, undo = watch
    log_dir = watched.log
    nodes = all_hosts(watched)
    eventually(lambda: hosts_in(log_dir, "hw_load1") == nodes, "all are in the file", 60.0)
    (first,) = log_dir.glob("history/series-*.db")
    begun = min(min(times) for times in samples(first, "hw_load1").values())
    os.kill(int(json.loads(_described(watched))["pid"]), signal.SIGKILL)
    killed = time.time()
    eventually(lambda: _last(first) > killed + 5.0, "the next goes on in the file", 60.0)
    undo.close()
    assert list(log_dir.glob("history/series-*.db")) == [first]
    kept = samples(first, "hw_load1")
    assert min(min(times) for times in kept.values()) == begun
    done = ray_cluster.run("diagnose", str(log_dir), "--json")
    assert done.returncode in (0, 1), done.stderr


def _last(path: Path) -> float:
    return max(max(times) for times in samples(path, "hw_load1").values())


def _coordinator(ray: object) -> object:
    from ray_sentinel.actors.deployment import deploy

    return deploy.find(ray)


def _described(watched: Watched) -> str:
    from ray_sentinel.actors.messages import Description

    return json.dumps({"pid": watched.ask("describe", Description).pid})

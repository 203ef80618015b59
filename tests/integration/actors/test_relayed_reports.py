"""Agents that report by way of relays, as those of large clusters do."""

from __future__ import annotations

import contextlib
import os
import signal
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually
from tests.support.watched_job import WatchedJob, culprits

pytestmark = pytest.mark.integration

FRESH_SECONDS = 3.0
"""An agent whose report is no older is heard."""


@pytest.fixture(scope="module")
def watched(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Two relays for three nodes."""
    log = tmp_path_factory.mktemp("log")
    ray_cluster.up(
        log,
        RAY_SENTINEL_COORDINATOR__RELAYS_ABOVE="1",
        RAY_SENTINEL_COORDINATOR__AGENTS_PER_RELAY="2",
    )
    with ray_cluster.connected() as ray:
        yield Watched(ray, log)
    ray_cluster.down()


def relays(watched: Watched) -> dict[str, int]:
    """The pids of those that answer, by node id."""
    from ray_sentinel.actors.deployment import placement
    from ray_sentinel.actors.names import NAMESPACE, relay_name

    ray = watched.ray
    handles = {
        node_id: ray.get_actor(relay_name(node_id), namespace=NAMESPACE)
        for node_id in placement.relays()
    }
    pings = {node_id: handle.ping.remote() for node_id, handle in handles.items()}
    ready, _ = ray.wait(list(pings.values()), num_returns=len(pings), timeout=2.0)
    found = {}
    for node_id, ping in pings.items():
        if ping in ready:
            try:
                found[node_id] = ray.get(ping)
            except ray.exceptions.RayError:
                continue  # it is being started again
    return found


def two_relays(watched: Watched) -> dict[str, int]:
    """Once both are there."""

    def both() -> dict[str, int] | None:
        found = relays(watched)
        return found if len(found) == 2 else None

    return eventually(both, "two relays answer", 60.0)


def relayed(watched: Watched) -> float:
    """How many reports have come by way of relays, as the head serves it."""
    head = next(node for node in watched.status().nodes if node.is_head)
    with urllib.request.urlopen(head.metrics_url, timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    told = [line for line in lines if line.startswith("ray_sentinel_relayed_reports_total{")]
    return float(told[0].rpartition(" ")[2]) if told else 0.0


def in_use(watched: Watched) -> bool:
    """Whether reports come by way of relays now."""
    before = relayed(watched)
    eventually(lambda: relayed(watched) > before + 3, "reports come by way of relays", 40.0)
    return True


def heard(watched: Watched) -> bool:
    """Whether all agents were heard of lately."""
    return all(agent.age_seconds < FRESH_SECONDS for agent in watched.agents().values())


def test_a_fault_is_told_by_way_of_relays(watched: Watched, ray_cluster: RayCluster) -> None:
    two_relays(watched)
    assert in_use(watched)
    work = watched.status().coordinator
    assert work is not None
    assert work.relays == 2
    job = WatchedJob(ray_cluster, watched, "relayed")
    try:
        job.start("none", "sigstop")
        told = job.verdict()
    finally:
        job.close()
    assert (told.kind, [rank for rank, _ in culprits(told)]) == ("rank-stopped", [1])


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_agents_whose_relay_is_gone_report_themselves(
    watched: Watched, ray_cluster: RayCluster, number: signal.Signals
) -> None:
    before = two_relays(watched)
    assert in_use(watched)
    job = WatchedJob(ray_cluster, watched, f"relays-{number.name.lower()}")
    try:
        job.start("none", "none")
        job.until_training(2)
        for pid in before.values():
            os.kill(pid, number)
        beyond = max(job.steps().values()) + 200
        job.until_training(2, beyond=beyond)
        eventually(lambda: heard(watched), "all agents report")
        if number == signal.SIGSTOP:
            for pid in before.values():
                with contextlib.suppress(ProcessLookupError):  # it was replaced
                    os.kill(pid, signal.SIGCONT)
        two_relays(watched)
        assert in_use(watched), "they are used again"
        assert job.incidents() == []
    finally:
        job.close()

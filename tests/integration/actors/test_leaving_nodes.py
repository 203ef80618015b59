"""Nodes that leave a watched cluster: announced, as a spot machine's end is, or not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.progress.rank.own_process import raylet_above
from tests.support.placed_ranks import start_rank_on
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually
from tests.support.watched_job import WatchedJob, culprits

pytestmark = pytest.mark.integration

STAYING = ("127.0.0.2", "127.0.0.3")
LEAVING = "127.0.0.7"
STEPS = 100
"""Of 50 ms: so long the ranks that stay go on, while whatever would be raised is."""


class SpotJob:
    """Three ranks that step by themselves; the last is on the node that will leave."""

    def __init__(self, cluster: RayCluster, watched: Watched, name: str) -> None:
        self.cluster, self.watched = cluster, watched
        self.job = WatchedJob(cluster, watched, name)
        self.launchers: list[Any] = []
        self.pids: list[int] = []

    def start(self) -> None:
        """Until all three are seen to step."""
        ray = self.watched.ray
        eventually(lambda: self.node_id in living_ids(self.watched), "the new node is watched")
        self.launchers = [
            start_rank_on(ray, address, self.job.name, "none", rank, size=3)
            for rank, address in enumerate((*STAYING, LEAVING))
        ]
        self.pids = ray.get([launcher.start.remote() for launcher in self.launchers], timeout=60)
        self.job.until_training(3)

    @property
    def node_id(self) -> str:
        """Of the node that will leave, once it has an agent."""
        agent = self.watched.agents().get(LEAVING)
        return agent.node_id if agent is not None else ""

    def drain(self, seconds: int) -> None:
        """As a cloud's notice is passed on: the machine will be taken away in so many seconds."""
        ended = subprocess.run(
            [
                f"{sysconfig.get_path('scripts')}/ray",
                *("drain-node", "--address", self.cluster.address, "--node-id", self.node_id),
                *("--reason", "DRAIN_NODE_REASON_PREEMPTION"),
                *("--reason-message", "spot", "--deadline-remaining-seconds", str(seconds)),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        eventually(
            lambda: any(
                f"{LEAVING} is being drained" in note for note in self.watched.status().notes
            ),
            "status tells that it is drained",
        )

    def end_rank_there(self) -> None:
        """As the job's own driver does."""
        ray = self.watched.ray
        ray.get(self.launchers[-1].end.remote(), timeout=30)
        ray.kill(self.launchers.pop())
        self.pids.pop()

    def goes_on_in_peace(self) -> None:
        """The others take their steps, and nobody is accused."""
        steps = self.job.steps()
        eventually(
            lambda: all(self.job.steps().get(rank, 0) > steps[rank] + STEPS for rank in (0, 1)),
            "the ranks that stay go on",
            60.0,
        )
        eventually(lambda: self.watched.status().state == "healthy", "status says that all is well")
        assert self.job.incidents() == []

    def close(self) -> None:
        """End all ranks that are left, as the job's own driver does: nobody may be accused."""
        ray = self.watched.ray
        for launcher in self.launchers:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(launcher.end.remote(), timeout=30)
            ray.kill(launcher)


@pytest.fixture
def watched(watched_by_all: Watched) -> Watched:
    """Of which the last test leaves a job that is hung."""
    return watched_by_all


@pytest.fixture
def spot(
    ray_cluster: RayCluster, watched: Watched, request: pytest.FixtureRequest
) -> Iterator[SpotJob]:
    """A job on two nodes that stay and one that leaves."""
    ray_cluster.add(LEAVING)
    made = SpotJob(ray_cluster, watched, request.node.name)
    try:
        made.start()
        yield made
    finally:
        made.close()
        ray_cluster.remove(LEAVING)
        eventually(lambda: LEAVING not in living(watched), "Ray takes it for dead", 60.0)


def living(watched: Watched) -> set[str]:
    return {node["NodeManagerAddress"] for node in watched.ray.nodes() if node["Alive"]}


def living_ids(watched: Watched) -> set[str]:
    return {node["NodeID"] for node in watched.ray.nodes() if node["Alive"]}


def nothing_of_ours_is_left_there(watched: Watched, node_id: str) -> bool:
    from ray_sentinel.actors.deployment import placement

    status = watched.status()
    shown = {node.address for node in status.nodes} | {node.host for node in status.unwatched}
    return node_id not in placement.groups() and LEAVING not in shown


def test_a_drained_node_goes_by_itself(spot: SpotJob) -> None:
    """Its agent lets it go as soon as the job has ended its rank there."""
    node_id = spot.node_id
    spot.drain(seconds=600)
    assert spot.watched.agents()[LEAVING].node_id == node_id, "its rank is still watched"
    spot.end_rank_there()
    eventually(lambda: LEAVING not in living(spot.watched), "the node leaves by itself", 45.0)
    eventually(
        lambda: nothing_of_ours_is_left_there(spot.watched, node_id), "agent and group are gone"
    )
    spot.goes_on_in_peace()
    assert not any("drained" in note for note in spot.watched.status().notes)


def test_a_drained_node_that_is_taken_away_at_its_deadline(spot: SpotJob) -> None:
    node_id = spot.node_id
    spot.drain(seconds=5)
    kill_node(spot)
    eventually(lambda: LEAVING not in living(spot.watched), "Ray takes it for dead", 60.0)
    eventually(
        lambda: nothing_of_ours_is_left_there(spot.watched, node_id), "agent and group are gone"
    )
    spot.goes_on_in_peace()


def test_a_node_that_is_taken_away_without_a_word_is_lost(spot: SpotJob) -> None:
    pid = spot.pids[-1]
    kill_node(spot)
    incident = spot.job.verdict()
    assert incident.kind == "node-lost"
    assert culprits(incident) == [(2, pid)]
    assert incident.verdict is not None
    assert [culprit.host for culprit in incident.verdict.culprits] == [LEAVING]
    told = json.loads(spot.cluster.run("status", "--json").stdout)
    assert told["state"] == "hung"
    assert LEAVING in told["verdict"]


def kill_node(spot: SpotJob) -> None:
    """A machine that goes takes all with it at once: raylet, agent, workers and rank."""
    agent, rank = spot.watched.agents()[LEAVING].pid, spot.pids.pop()
    worker = int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])
    raylet = raylet_above(rank)
    assert raylet
    spot.launchers.pop()
    for pid in (raylet, agent, worker, rank):
        os.kill(pid, signal.SIGKILL)

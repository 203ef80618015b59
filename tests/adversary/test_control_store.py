"""Ray's control store (GCS) is killed and started again, its state kept in Redis: the watch and
``:9400`` go on meanwhile, verdicts come, and nothing of what happened is lost afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ray_sentinel.actors.coordinator.fleet import AWAY
from ray_sentinel.actors.deployment import deploy
from ray_sentinel.actors.messages import AgentInfo, Description
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import Status
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.redis_server import redis_server
from tests.support.served import goes_on, served_steps
from tests.support.waiting import eventually
from tests.support.watched_job import WatchedJob, culprits

pytestmark = pytest.mark.integration

ANSWER = 5.0
"""Seconds for the coordinator to answer who holds its handle."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    """Two nodes, whose control store keeps its state in Redis."""
    with redis_server(tmp_path) as address:
        with monkeypatch.context() as patch:
            patch.setenv("RAY_REDIS_ADDRESS", address)
            made = RayCluster(addresses=("127.0.0.2",))
        try:
            yield made
        finally:
            made.stop()


class Held:
    """Asks a coordinator whose handle is held: that takes no control store."""

    def __init__(self, ray: Any) -> None:
        self._ray, self._handle = ray, deploy.find(ray)

    def ask(self, method: str, kind: Any) -> Any:
        raw = deploy.ask(self._ray, self._handle, method, seconds=ANSWER)
        return msgspec.msgpack.decode(raw, type=kind)


def test_the_watch_goes_on_while_the_control_store_is_away(
    cluster: RayCluster, tmp_path: Path
) -> None:
    cluster.up(tmp_path / "log")
    with cluster.connected() as ray:
        watched, held = Watched(ray), Held(ray)
        with WatchedJob(cluster, watched, "storeless") as job:
            job.start("none", "none")
            job.until_training(2)
            agents = {agent.pid for agent in watched.agents().values()}
            urls = [node.metrics_url for node in watched.status().nodes]
            url = eventually(lambda: next(filter(served_steps, urls), None), "who serves them")

            cluster.lose_control_store()
            description = held.ask("describe", Description)
            goes_on(url, "0")
            eventually(lambda: AWAY in held.ask("status", Status).notes, "it is said", 20.0)
            assert all(
                (node.snapshot_age_seconds or 0.0) < 3.0
                for node in held.ask("status", Status).nodes
            )
            job.ranks[1].send_signal(signal.SIGSTOP)
            incident = eventually(lambda: the_verdict(held), "a verdict without it", 30.0)
            assert incident.kind == "rank-stopped"
            assert culprits(incident) == [(1, job.ranks[1].pid)]

            # Nobody can find the coordinator that Ray is to start again, not before it is back.
            os.kill(description.pid, signal.SIGKILL)
            job.ranks[1].kill()
            job.ranks[1].wait()
            goes_on(url, "0", times=6)

            cluster.restore_control_store()
            eventually(lambda: comes_back(watched, description), "the coordinator is back", 30.0)
            eventually(lambda: ended(job, 1), "the exit of rank 1 was not lost", 20.0)
            found = job.incidents()
            assert incident.id in {one.id for one in found}
            assert AWAY not in watched.status().notes
            assert {agent.pid for agent in watched.agents().values()} == agents
            goes_on(url, "0")
    cluster.down()


def the_verdict(held: Held) -> Incident | None:
    found: tuple[Incident, ...] = held.ask("incidents", tuple[Incident, ...])
    return next((one for one in found if one.verdict is not None), None)


def comes_back(watched: Watched, before: Description) -> bool:
    now = watched.ask("describe", Description)
    agents = watched.ask("agents", tuple[AgentInfo, ...])
    return now.pid != before.pid and len(agents) == 2


def ended(job: WatchedJob, rank: int) -> bool:
    status = job.status()
    return status is not None and any(
        one.rank == rank and one.state == "exited" for one in status.ranks
    )

"""Jobs of torchrun without a line of ours, beside no supervisor: plain ones and elastic ones."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ray_sentinel.model.status import JobStatus
from tests.support.found_job import incidents, named, training, until_known
from tests.support.living import alive, descendants
from tests.support.ray_cluster import ADDRESSES, RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SUPPORT = Path(__file__).parents[2] / "support"
QUICKLY = "last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=10,join_timeout=100"
"""A round of the rendezvous waits 3 s for late nodes; who is silent for 10 s counts as gone, which
is longer than an agent waits for a CPU."""
SURROUNDINGS = [
    "GLOO_SOCKET_IFNAME=lo",
    "OMP_NUM_THREADS=1",
    # With it PyTorch 2.13 does not tell a node that joins later where to meet.
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
]


class Torchrun:
    """Agents of torchrun on nodes of the cluster, each started by a worker of Ray."""

    def __init__(self, cluster: RayCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.name = f"elastic-{os.getpid()}-{folder.parent.name}"
        folder.mkdir()
        self.drivers: list[subprocess.Popen[bytes]] = []
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.endpoint = f"127.0.0.1:{probe.getsockname()[1]}"

    def start(self, address: str, ranks: int, nodes: str) -> int:
        """One agent more; its pid."""
        number = len(self.drivers)
        file, log = self.folder / f"agent-{number}", self.folder / f"agent-{number}.log"
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", self.endpoint]
        meeting += ["--rdzv-id", self.name, "--rdzv-conf", QUICKLY, "--local-addr", "127.0.0.1"]
        size = ["--nnodes", nodes, "--nproc-per-node", str(ranks), "--max-restarts", "3"]
        torchrun = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", *meeting, *size]
        train = ["env", *SURROUNDINGS, *torchrun, str(SUPPORT / "gloo_train.py"), str(self.folder)]
        with open(log, "wb") as output:
            self.drivers.append(
                subprocess.Popen(
                    [sys.executable, str(SUPPORT / "on_node.py"), address, str(file), *train],
                    env=self.cluster.environ(),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
        return int(eventually(lambda: file.exists() and file.read_text(), "it is started", 60.0))

    def meets(self) -> bool:
        """Whether the rendezvous is served, so that another agent may be started."""
        host, port = self.endpoint.split(":")
        with socket.socket() as client:
            return client.connect_ex((host, int(port))) == 0

    def training(self, world: int) -> dict[int, int]:
        """Pids by rank, once a world of this size takes steps."""
        logs = [self.folder / f"agent-{number}.log" for number in range(len(self.drivers))]
        return training(self.folder / f"world-{world}", world, *logs)

    def leave(self, agent: int) -> None:
        """An agent ends as on a node that is taken away; its ranks with it."""
        ranks = descendants(agent)
        os.kill(agent, signal.SIGTERM)
        eventually(lambda: not any(map(alive, [agent, *ranks])), "the agent ends")

    def close(self) -> None:
        """End all of them, also what is stopped."""
        for file in self.folder.glob("agent-?"):
            agent = int(file.read_text())
            for pid in [agent, *descendants(agent)]:
                if alive(pid):
                    os.kill(pid, signal.SIGKILL)
        for driver in self.drivers:
            driver.kill()
            driver.wait(timeout=10)


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


@pytest.fixture
def torchrun(ray_cluster: RayCluster, watched: Watched, tmp_path: Path) -> Iterator[Torchrun]:
    started = Torchrun(ray_cluster, tmp_path / "job")
    yield started
    started.close()


def test_a_rank_that_falls_asleep(torchrun: Torchrun, watched: Watched) -> None:
    torchrun.start(ADDRESSES[0], 2, "1")
    pids = torchrun.training(2)
    found = until_known(watched, pids)
    assert (found.job, found.attempt, found.world_size) == (torchrun.name, 0, 2)
    assert incidents(watched, torchrun.name) == []
    (torchrun.folder / "stuck-1").touch()
    incident = named(watched, torchrun.name, pids[1], 60.0)
    assert incident.kind == "host-stuck"
    assert incident.verdict is not None
    assert [culprit.rank for culprit in incident.verdict.culprits] == [1]


def test_a_node_leaves(torchrun: Torchrun, watched: Watched) -> None:
    """Its ranks are ended, those that stay fall for it, and go on as a smaller world."""
    torchrun.start(ADDRESSES[0], 2, "1:2")
    eventually(torchrun.meets, "the first agent serves the rendezvous", 60.0)
    leaving = torchrun.start(ADDRESSES[1], 1, "1:2")
    found = until_known(watched, torchrun.training(3))
    assert (found.job, found.world_size) == (torchrun.name, 3)
    before = found.attempt  # not 0 where a rank failed while the second node came to the first
    torchrun.leave(leaving)
    pids = torchrun.training(2)
    found = until_known(watched, pids)
    attempt = before + 1
    assert int(psutil.Process(pids[1]).environ()["TORCHELASTIC_RESTART_COUNT"]) == attempt
    assert (found.job, found.attempt, found.world_size) == (torchrun.name, attempt, 2)
    assert sorted(rank.rank for rank in found.ranks) == [0, 1]
    assert incidents(watched, torchrun.name) == [], "the restart is nobody's fault"
    os.kill(pids[1], signal.SIGSTOP)
    incident = named(watched, torchrun.name, pids[1])
    assert (incident.kind, incident.attempt) == ("rank-stopped", attempt)


def test_a_node_joins_after_a_failure(torchrun: Torchrun, watched: Watched) -> None:
    """The new node has not counted the failure, and tells its ranks another attempt."""
    torchrun.start(ADDRESSES[0], 2, "1:2")
    first = torchrun.training(2)
    until_known(watched, first)
    os.kill(first[0], signal.SIGKILL)
    assert named(watched, torchrun.name, first[0]).kind == "rank-dead"

    def again() -> JobStatus | None:
        jobs = [job for job in watched.status().jobs if job.job == torchrun.name]
        return next((job for job in jobs if job.attempt == 1 and not job.ended), None)

    eventually(again, "the second attempt is seen", 60.0)
    torchrun.start(ADDRESSES[1], 1, "1:2")
    pids = torchrun.training(3)
    found = until_known(watched, pids)
    assert (found.job, found.attempt, found.world_size) == (torchrun.name, 1, 3)
    os.kill(pids[2], signal.SIGSTOP)

    def blamed() -> list[int | None]:
        told = [it.verdict for it in incidents(watched, torchrun.name) if it.attempt == 1]
        return [culprit.pid for verdict in told if verdict for culprit in verdict.culprits]

    assert eventually(blamed, "the culprit is named") == [pids[2]]

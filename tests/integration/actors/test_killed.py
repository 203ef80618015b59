"""SIGKILL of each process of ours in turn, and in the middle of an incident."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.actors.messages import Description
from ray_sentinel.model.incident import Incident
from ray_sentinel.progress.proc.proc_stat import parse_stat
from tests.support.living import alive, descendants
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually
from tests.support.watched_job import WatchedJob, culprits

pytestmark = pytest.mark.integration

SUPPORT = Path(__file__).parents[2] / "support"
HEALTHY = SUPPORT / "healthy_train.py"
RANK = SUPPORT / "shell_rank.py"
STACKS_OF = re.compile(rb'"event":"stacks"[^\n]*?"incident":"(\d+)"')


@pytest.fixture
def watched(watched_by_all: Watched) -> Watched:
    return watched_by_all


def ours(watched: Watched) -> dict[int, str]:
    """Every process of ours in the cluster, and what it is."""
    found = {watched.ask("describe", Description).pid: "coordinator"}
    for address, agent in watched.agents().items():
        found[agent.pid] = f"agent of {address}"
        for pid in descendants(agent.pid):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"ray_sentinel.collect.child" in line:
                    found[pid] = "collector " + line.rstrip(b"\0").rsplit(b"\0", 1)[-1].decode()
    return found


def actors_of(watched: Watched) -> list[int]:
    """Coordinator and agents; none as long as one of them is told that has ended."""
    found = [pid for pid, what in ours(watched).items() if not what.startswith("collector")]
    return found if len(found) == 4 and all(map(alive, found)) else []


def well(watched: Watched) -> bool:
    status = watched.status()
    return (
        len(status.nodes) == 3
        and not status.unwatched
        and all((node.snapshot_age_seconds or 99.0) < 3.0 for node in status.nodes)
        and all(
            any(collector.name == "host" and collector.success for collector in node.collectors)
            for node in status.nodes
        )
    )


def test_every_process_of_ours_in_turn(ray_cluster: RayCluster, watched: Watched) -> None:
    with WatchedJob(ray_cluster, watched, "killing") as job:
        job.start("none", "none")
        job.until_training(2)
        eventually(lambda: well(watched), "all is up")
        targets = ours(watched)
        assert {"coordinator"} < set(targets.values())
        assert any(what.startswith("collector") for what in targets.values())
        for pid, what in targets.items():
            if not alive(pid):
                continue  # a collector of an agent that was killed before
            children, before = descendants(pid), job.steps()
            os.kill(pid, signal.SIGKILL)
            eventually(
                lambda children=children: not any(map(alive, children)),
                f"no child of the {what} is left",
                10.0,
            )
            eventually(
                lambda before=before: all(
                    job.steps().get(rank, 0) > before.get(rank, 0) for rank in (0, 1)
                ),
                f"the job goes on and is seen after the {what} was killed",
                60.0,
            )
            eventually(lambda: well(watched), f"all is well after the {what} was killed", 60.0)
        assert job.incidents() == [], "nobody is accused for what befell us"
        assert [rank.poll() for rank in job.ranks] == [None, None]


def test_an_exit_while_nobody_watches_is_told_afterwards(
    ray_cluster: RayCluster, watched: Watched
) -> None:
    with WatchedJob(ray_cluster, watched, "blind") as job:
        job.start("none", "none")
        job.until_training(2)
        # All at once: no agent sees the exit, no coordinator could be told.
        for pid in eventually(lambda: actors_of(watched), "all actors of ours live"):
            os.kill(pid, signal.SIGKILL)
        job.ranks[1].kill()
        job.ranks[1].wait()
        incident = job.verdict(60.0)
        assert incident.kind == "rank-dead"
        assert culprits(incident) == [(1, job.ranks[1].pid)]


def kill_tracers(agents: list[int], while_runs: subprocess.Popen[bytes]) -> int:
    """Kill every tracer below the agents until that process ends; returns how many."""
    killed = 0
    while while_runs.poll() is None:
        for pid in (child for agent in agents for child in descendants(agent)):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[0].endswith((b"/py-spy", b"/gdb")):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
    return killed


def test_a_tracer_that_is_killed_leaves_the_rank_running(
    ray_cluster: RayCluster, watched: Watched
) -> None:
    with WatchedJob(ray_cluster, watched, "traced") as job:
        job.start("none")
        job.until_training(1)
        killed, end = 0, time.monotonic() + 60.0
        while not killed and time.monotonic() < end:  # a quick tracer is gone before it is found
            asked = subprocess.Popen(
                [sys.executable, "-m", "ray_sentinel.cli.main", "dump", "--job", "traced"],
                env=ray_cluster.environ(),
                stdout=subprocess.DEVNULL,
            )
            killed += kill_tracers([agent.pid for agent in watched.agents().values()], asked)
            assert asked.returncode == 0
        assert killed > 0
        eventually(
            lambda: (
                parse_stat(Path(f"/proc/{job.ranks[0].pid}/stat").read_bytes()).state
                not in ("T", "t")
            ),
            "it is not left stopped",
        )
        step = job.steps()[0]
        eventually(lambda: job.steps().get(0, 0) > step + 10, "it goes on")


@pytest.fixture
def hanging(ray_cluster: RayCluster) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A real training of two ranks; rank 1 falls asleep in a step, and rank 0 waits for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HEALTHY), "long-step", "600", "1000"],
            env=ray_cluster.environ(
                RANK=str(rank),
                WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
                GLOO_SOCKET_IFNAME="lo",
                OMP_NUM_THREADS="1",
                TEST_JOB="half-way",
            ),
        )
        for rank in range(2)
    ]
    yield ranks
    for rank in ranks:
        rank.kill()
        rank.wait()


def test_killed_between_suspicion_and_verdict(
    ray_cluster: RayCluster,
    watched: Watched,
    hanging: list[subprocess.Popen[bytes]],
) -> None:
    job = WatchedJob(ray_cluster, watched, "half-way")

    def suspects() -> set[bytes]:
        """The incidents for which stacks were taken lately."""
        found = set()
        for path in sorted((watched.log / "events").rglob("*.jsonl*"))[-3:]:
            with contextlib.suppress(FileNotFoundError, EOFError):  # it is just being packed
                data = path.read_bytes()
                plain = gzip.decompress(data) if path.suffix == ".gz" else data
                found |= set(STACKS_OF.findall(plain))
        return found

    eventually(lambda: job.steps().get(1, 0) >= 14, "the last step before the sleep", 120.0)
    # While torch was imported nothing moved either, which is no incident.
    earlier = suspects()
    eventually(lambda: suspects() - earlier, "the first stacks are taken", 60.0, every=0.02)
    assert job.incidents() == [], "there is no verdict yet"
    before = watched.ask("describe", Description)
    os.kill(before.pid, signal.SIGKILL)
    killed_at = time.time()
    incident = job.verdict(60.0)
    after = watched.ask("describe", Description)
    assert (after.pid != before.pid, after.restarts) == (True, 1)
    assert culprits(incident) == [(1, hanging[1].pid)]
    assert incident.kind == "host-stuck"
    assert (incident.confirmed_at or 0.0) > killed_at > incident.suspected_at


@pytest.fixture
def stopped_rank(ray_cluster: RayCluster, watched: Watched) -> Iterator[subprocess.Popen[str]]:
    """A job of two ranks that took some steps; then one was stopped."""
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANK), "stopped-job"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ray_cluster.environ(RANK=str(number), WORLD_SIZE="2"),
        )
        for number in range(2)
    ]
    try:

        def moves() -> bool:
            jobs = [job for job in watched.status().jobs if job.job == "stopped-job"]
            return bool(jobs) and len(jobs[0].ranks) == 2 and (jobs[0].step or 0) > 5

        eventually(moves, "both ranks take steps")
        os.kill(ranks[0].pid, signal.SIGSTOP)
        yield ranks[0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def incident_of(watched: Watched, job: str) -> Incident | None:
    found = [i for i in watched.ask("incidents", tuple[Incident, ...]) if i.job == job]
    return found[0] if found else None


def test_an_incident_outlives_the_coordinator(
    watched: Watched, stopped_rank: subprocess.Popen[str]
) -> None:
    def explained() -> Incident | None:
        found = incident_of(watched, "stopped-job")
        return found if found is not None and found.bundle else None

    before = eventually(explained, "the stopped rank has an incident with a bundle")
    assert before.kind == "rank-stopped"
    assert [culprit.pid for culprit in before.verdict.culprits] == [stopped_rank.pid]  # type: ignore[union-attr]
    bundle = Path(before.bundle)
    assert bundle.parent == watched.log / "incidents"
    names = {path.name for path in bundle.iterdir()}
    assert {"incident.json", "report.md"} <= names
    assert any(name.startswith("pyspy_") for name in names)

    killed = watched.ask("describe", Description)
    os.kill(killed.pid, signal.SIGKILL)
    eventually(lambda: watched.ask("describe", Description).pid != killed.pid, "it is back")
    assert watched.ask("describe", Description).restarts == 1
    after = incident_of(watched, "stopped-job")
    assert after is not None
    assert (after.id, after.bundle, after.suspected_at, after.verdict) == (
        before.id,
        before.bundle,
        before.suspected_at,
        before.verdict,
    )
    # The revived incident goes on: it ends when the rank moves again, and no second one is made.
    os.kill(stopped_rank.pid, signal.SIGCONT)
    eventually(
        lambda: (found := incident_of(watched, "stopped-job")) and found.state == "resolved",
        "the incident is resolved",
    )
    every = watched.ask("incidents", tuple[Incident, ...])
    assert len([incident for incident in every if incident.job == "stopped-job"]) == 1
    stored = bundle / "incident.json"
    eventually(lambda: json.loads(stored.read_text())["state"] == "resolved", "the bundle says so")

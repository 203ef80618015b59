"""SIGKILL of each process of ours in turn; of all at once while a rank dies; of a tracer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ray_sentinel.actors.deployment import Description
from ray_sentinel.progress.proc_stat import parse_stat
from tests.support.living import alive, descendants
from tests.support.ray_cluster import RayCluster, Watched, eventually
from tests.support.watched_job import WatchedJob, culprits

pytestmark = pytest.mark.integration


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
        pids = [pid for pid, what in ours(watched).items() if not what.startswith("collector")]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        job.ranks[1].kill()
        job.ranks[1].wait()
        incident = job.verdict(60.0)
        assert incident.kind == "rank-dead"
        assert culprits(incident) == [(1, job.ranks[1].pid)]


def test_a_tracer_that_is_killed_leaves_the_rank_running(
    ray_cluster: RayCluster, watched: Watched
) -> None:
    with WatchedJob(ray_cluster, watched, "traced") as job:
        job.start("none")
        job.until_training(1)
        asked = subprocess.Popen(
            [sys.executable, "-m", "ray_sentinel.cli.main", "dump", "--job", "traced", "--json"],
            env=ray_cluster.environ(),
            stdout=subprocess.DEVNULL,
        )
        killed = 0
        agents = [agent.pid for agent in watched.agents().values()]
        while asked.poll() is None:
            for pid in (child for agent in agents for child in descendants(agent)):
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    if words[0].endswith((b"/py-spy", b"/gdb")):
                        os.kill(pid, signal.SIGKILL)
                        killed += 1
        assert killed > 0
        assert asked.returncode == 0
        eventually(
            lambda: (
                parse_stat(Path(f"/proc/{job.ranks[0].pid}/stat").read_bytes()).state
                not in ("T", "t")
            ),
            "it is not left stopped",
        )
        step = job.steps()[0]
        eventually(lambda: job.steps().get(0, 0) > step + 10, "it goes on")

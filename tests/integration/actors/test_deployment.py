"""Deployment on a real Ray cluster of three nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

ENSURE = """
import sys
from ray_sentinel.actors.deployment import cluster, deploy
from ray_sentinel.config import load
with cluster.connect(ship=True) as ray:
    deployed = deploy.ensure(ray, load(overrides={"log_dir": sys.argv[1]}))
    print(deployed.description.pid, deployed.created)
"""


def _groups(ray: object) -> dict[str, str]:
    from ray_sentinel.actors.deployment import placement

    return {node_id: group.state for node_id, group in placement.groups().items()}


def test_one_coordinator_from_eight_processes_at_once(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ENSURE, str(tmp_path)],
            env=ray_cluster.environ(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    said = [process.communicate(timeout=120)[0].split() for process in started]
    assert [process.returncode for process in started] == [0] * 8
    assert len({pid for pid, _ in said}) == 1
    assert [created for _, created in said].count("True") == 1
    with ray_cluster.connected() as ray:
        watched = Watched(ray)
        eventually(lambda: len(watched.agents()) == 3, "three agents report")
        assert set(_groups(ray).values()) == {"CREATED"}
        assert len(_groups(ray)) == 3
    ray_cluster.down()


def test_each_agent_is_on_its_own_node(watched: Watched, ray_cluster: RayCluster) -> None:
    agents = watched.agents()
    assert {"127.0.0.2", "127.0.0.3"} < set(agents)
    for address, agent in agents.items():
        variables = Path(f"/proc/{agent.pid}/environ").read_bytes().split(b"\0")
        assert b"RANK=" in variables, "identity variables are blanked"
        status = Path(f"/proc/{agent.pid}/stat").read_text().rpartition(")")[2].split()
        raylet = Path(f"/proc/{status[1]}/cmdline").read_bytes()
        assert f"--node_ip_address={address}\0".encode() in raylet


def test_a_killed_agent_answers_again(watched: Watched) -> None:
    before = watched.agents()["127.0.0.2"]
    os.kill(before.pid, signal.SIGKILL)

    def back() -> bool:
        now = watched.agents().get("127.0.0.2")
        return now is not None and now.incarnation != before.incarnation

    eventually(back, "the agent reports again", seconds=20)
    assert watched.agents()["127.0.0.2"].restarts == 1
    assert any("restarted" in note for note in watched.status().notes)


def test_a_killed_coordinator_comes_back_and_finds_the_agents(
    watched: Watched, tmp_path: Path
) -> None:
    from ray_sentinel.actors.deployment import deploy
    from ray_sentinel.actors.messages import Description

    before = watched.ask("describe", Description)
    agents = {agent.incarnation for agent in watched.agents().values()}
    os.kill(before.pid, signal.SIGKILL)
    after = eventually(
        lambda: (
            found if (found := watched.ask("describe", Description)).pid != before.pid else None
        ),
        "another process answers",
    )
    assert after.restarts == 1
    eventually(
        lambda: {agent.incarnation for agent in watched.agents().values()} == agents,
        "the same agents report to it",
    )
    assert not watched.status().unwatched
    assert deploy.find(watched.ray) is not None


def test_nodes_that_join_and_leave(watched: Watched, ray_cluster: RayCluster) -> None:
    ray_cluster.add("127.0.0.4")
    try:
        eventually(lambda: "127.0.0.4" in watched.agents(), "the new node is watched")
    finally:
        ray_cluster.remove("127.0.0.4")
    eventually(lambda: len(_groups(watched.ray)) == 3, "its group is dropped", seconds=60)
    eventually(lambda: "127.0.0.4" not in watched.agents(), "its agent is forgotten")


def test_agents_restart_command(watched: Watched, ray_cluster: RayCluster) -> None:
    before = watched.agents()["127.0.0.3"].incarnation
    ended = ray_cluster.run("agents", "restart", "127.0.0.3", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["restarted"] is True
    assert watched.agents()["127.0.0.3"].incarnation != before
    assert ray_cluster.run("agents", "restart", "nowhere").returncode == 2


def test_down_leaves_nothing(ray_cluster: RayCluster, tmp_path: Path) -> None:
    ray_cluster.up(tmp_path)
    with ray_cluster.connected() as ray:
        pids = [agent.pid for agent in Watched(ray).agents().values()]
    ray_cluster.down()
    with ray_cluster.connected() as ray:
        assert _groups(ray) == {}
        names = ray.util.list_named_actors(all_namespaces=True)
        assert [entry for entry in names if entry["namespace"] == "ray_sentinel"] == []
    eventually(
        lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids),
        "the agents' processes have ended",
    )
    files = [path for path in tmp_path.rglob("*") if path != tmp_path]
    assert {"events", "history", "logs"} <= {path.name for path in files}
    assert [path for path in files if path.lstat().st_mode & 0o077] == [], "others may read"
    leases = list(tmp_path.rglob("*.lease"))
    assert leases
    assert all(b'"ended":true' in path.read_bytes() for path in leases)
    ended = ray_cluster.run("status", "--json")
    assert ended.returncode == 3
    assert "ray-sentinel up" in json.loads(ended.stdout)["error"]


def test_no_cluster_says_what_was_tried(ray_cluster: RayCluster) -> None:
    ended = ray_cluster.run("status", "--json", RAY_ADDRESS="127.0.0.1:9")
    assert ended.returncode == 3
    assert "127.0.0.1:9 (RAY_ADDRESS)" in json.loads(ended.stdout)["error"]


def test_the_head_serves_the_whole_cluster_without_another_process_of_ray(
    watched: Watched,
) -> None:
    head = next(node for node in watched.status().nodes if node.is_head)

    def served() -> str:
        page = urlopen(head.metrics_url, timeout=5).read().decode()
        return page if 'ray_cluster_resource{host="' in page else ""

    page = eventually(served, "the head serves Ray's resources", seconds=45)
    for address in watched.agents():
        assert f'node="{address}",resource="CPU"' in page
    agent = watched.agents()[head.address]
    children = f"/proc/{agent.pid}/task"
    below = [
        int(pid)
        for task in Path(children).iterdir()
        for pid in (task / "children").read_text().split()
    ]
    assert below
    assert not [pid for pid in below if "_raylet" in Path(f"/proc/{pid}/maps").read_text()]

"""The agents of a watched cluster: one on each node, for as long as the node is there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import urllib.request
from pathlib import Path

import psutil
import pytest

from ray_sentinel.actors.messages import Description
from ray_sentinel.model.status import CoordinatorStatus
from tests.support.living import alive, descendants
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def watched(watched_by_all: Watched) -> Watched:
    return watched_by_all


def _groups(ray: object) -> dict[str, str]:
    from ray.util.placement_group import placement_group_table

    from ray_sentinel.actors.deployment import placement

    return {key: placement_group_table(one)["state"] for key, one in placement.groups().items()}


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def collectors_of(watched: Watched, address: str) -> list[int]:
    """The pids of the node's collectors; empty until those that have nothing to read are gone."""
    node = next(node for node in watched.status().nodes if node.address == address)
    states = {collector.state for collector in node.collectors}
    if not states or "starting" in states:
        return []
    found = []
    for pid in descendants(watched.agents()[address].pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"ray_sentinel" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


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
    assert watched.agents()["127.0.0.2"].restarts == before.restarts + 1
    assert any("restarted" in note for note in watched.status().notes)


def test_a_killed_coordinator_comes_back_and_finds_the_agents(
    watched: Watched,
) -> None:
    from ray_sentinel.actors.deployment import deploy

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


def test_on_a_busy_host_the_agent_runs_as_the_ranks_do_and_its_collectors_give_way(
    watched: Watched,
) -> None:
    collectors = eventually(
        lambda: collectors_of(watched, "127.0.0.2"), "the agent has collector processes"
    )
    own = psutil.Process().nice()
    assert psutil.Process(watched.agents()["127.0.0.2"].pid).nice() == own
    assert psutil.Process(watched.ask("describe", Description).pid).nice() == own
    assert {psutil.Process(pid).nice() for pid in collectors} == {min(own + 10, 19)}


def test_killed_children_and_killed_parents(watched: Watched) -> None:
    agent = watched.agents()["127.0.0.2"]
    children = eventually(
        lambda: collectors_of(watched, "127.0.0.2"), "the agent has collector processes"
    )

    def restarts() -> int:
        (node,) = [node for node in watched.status().nodes if node.address == "127.0.0.2"]
        return sum(collector.restarts for collector in node.collectors)

    before = restarts()
    os.kill(children[0], signal.SIGKILL)
    eventually(lambda: not alive(children[0]), "it is dead")
    eventually(lambda: restarts() > before, "its collector is started again")
    everything = descendants(agent.pid)
    assert everything
    os.kill(agent.pid, signal.SIGKILL)
    eventually(lambda: not any(map(alive, everything)), "no child outlives the agent", 5.0)
    eventually(
        lambda: watched.agents()["127.0.0.2"].incarnation != agent.incarnation, "the agent is back"
    )


def test_metrics_and_service_discovery(watched: Watched) -> None:
    def served() -> dict[str, str]:
        pages = {node.host: get(node.metrics_url) for node in watched.status().nodes}
        return pages if all("hw_load1" in page for page in pages.values()) else {}

    pages = eventually(served, "every agent serves the host's metrics")
    status = watched.status()
    head = next(node for node in status.nodes if node.is_head)
    for host, page in pages.items():
        assert f'hw_load1{{host="{host}"}}' in page
        assert "ray_sentinel_build_info" in page
        assert ("ray_sentinel_agent_nodes" in page) == (host == head.host)
    everyone = sorted(node.metrics_url.split("/")[2] for node in status.nodes)
    for node in status.nodes:
        base = node.metrics_url.removesuffix("/metrics")
        assert get(base + "/healthz") == "ok\n"
        eventually(
            lambda base=base: sorted(json.loads(get(base + "/sd"))[0]["targets"]) == everyone,
            f"{base}/sd names every agent",
        )


def test_what_coordinator_and_agents_take_and_may_take_is_told(watched: Watched) -> None:
    def work() -> CoordinatorStatus | None:
        told = watched.status().coordinator
        return told if told is not None and told.reports_per_second >= 2.0 else None

    told = eventually(work, "three agents report every second")
    assert told.reports_due_per_second == 3.0
    assert 20 << 20 < told.memory_bytes < told.memory_limit_bytes == 2 << 30
    assert (told.series_limit_bytes, told.log_waiting_limit_bytes) == (160 << 20, 64 << 20)
    nodes = watched.status().nodes
    assert len(nodes) == 3
    assert all(20 << 20 < (node.memory_bytes or 0) < 1 << 30 for node in nodes)
    head = next(node for node in nodes if node.is_head)
    page = eventually(
        lambda: page if "ray_sentinel_agent_nodes" in (page := get(head.metrics_url)) else "",
        "the head serves the coordinator's metrics",
    )
    for process in ("agent", "coordinator"):
        assert f'ray_sentinel_memory_limit_bytes{{host="{head.host}",process="{process}"}}' in page
    assert f'ray_sentinel_reports_due_per_second{{host="{head.host}"}} 3' in page


def test_the_head_serves_the_whole_cluster_without_another_process_of_ray(
    watched: Watched,
) -> None:
    head = next(node for node in watched.status().nodes if node.is_head)

    def served() -> str:
        page = get(head.metrics_url)
        return page if 'ray_cluster_resource{host="' in page else ""

    page = eventually(served, "the head serves Ray's resources", seconds=45)
    for address in watched.agents():
        assert f'node="{address}",resource="CPU"' in page
    agent = watched.agents()[head.address]
    below = {pid: _maps(pid) for pid in descendants(agent.pid)}
    assert any(below.values())
    assert not [pid for pid, maps in below.items() if "_raylet" in maps]


def _maps(pid: int) -> str:
    """What a process has mapped; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""

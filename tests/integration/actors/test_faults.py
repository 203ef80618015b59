"""What the shell survives: killed processes, a taken port, folders that cannot be written, nodes
that do not have the package."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ray_sentinel.actors.messages import Description
from ray_sentinel.model.incident import Incident
from tests.support.living import alive, descendants
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

RANK = Path(__file__).parents[2] / "support/shell_rank.py"


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


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
    watched: Watched, stopped_rank: subprocess.Popen[str], tmp_path: Path
) -> None:
    def explained() -> Incident | None:
        found = incident_of(watched, "stopped-job")
        return found if found is not None and found.bundle else None

    before = eventually(explained, "the stopped rank has an incident with a bundle")
    assert before.kind == "rank-stopped"
    assert [culprit.pid for culprit in before.verdict.culprits] == [stopped_rank.pid]  # type: ignore[union-attr]
    bundle = Path(before.bundle)
    assert bundle.parent == tmp_path / "log/incidents"
    names = {path.name for path in bundle.iterdir()}
    assert {"incident.json", "report.md"} <= names
    assert any(name.startswith("pyspy_") for name in names)

    os.kill(watched.ask("describe", Description).pid, signal.SIGKILL)
    eventually(lambda: watched.ask("describe", Description).restarts == 1, "it is back")
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
    stored = json.loads((bundle / "incident.json").read_text())
    assert stored["state"] == "resolved"


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
    os.kill(children[0], signal.SIGKILL)
    eventually(lambda: not alive(children[0]), "it is dead")
    eventually(
        lambda: any(
            collector.restarts
            for node in watched.status().nodes
            if node.address == "127.0.0.2"
            for collector in node.collectors
        ),
        "its collector is started again",
    )
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


def test_a_taken_port(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.3", 0))
        other.listen()
        port = other.getsockname()[1]
        ray_cluster.up(tmp_path, RAY_SENTINEL_AGENT__PORT=str(port))
        try:
            with ray_cluster.connected() as ray:
                status = Watched(ray).status()
        finally:
            ray_cluster.down()
    (url,) = [node.metrics_url for node in status.nodes if node.address == "127.0.0.3"]
    assert url.startswith("http://127.0.0.3:")
    assert f":{port}/" not in url
    assert any(f"port {port} of 127.0.0.3 is taken" in note for note in status.notes)


def test_a_log_folder_that_cannot_be_written(ray_cluster: RayCluster, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    try:
        ended = ray_cluster.run("up", "--log-dir", str(blocked / "below"), "--json")
        assert ended.returncode == 0, ended.stderr
        told = json.loads(ended.stdout)
        assert any(str(blocked / "below") in note for note in told["notes"])
        assert told["log_dir"] not in ("", str(blocked / "below"))
    finally:
        ray_cluster.down()


def test_wrong_configuration_is_refused_before_anything_is_made(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    file = tmp_path / "sentinel.toml"
    file.write_text("[hang]\nsilence_secs = 3\n")
    ended = ray_cluster.run("up", "--config", str(file), "--json")
    assert ended.returncode == 2
    error = json.loads(ended.stdout)["error"]
    assert str(file) in error
    assert "silence_seconds" in error
    assert ray_cluster.run("status", "--json").returncode == 3


HIDE = '''
"""A node without our package: what is installed of it cannot be found, what Ray ships can."""
import sys
from importlib.machinery import PathFinder

sys.path[:] = [entry for entry in sys.path if entry not in {hidden!r}]

class Hide(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "msgspec" and path is None:
            path = [entry for entry in sys.path if "site-packages" not in entry]
        return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hide
'''


def test_a_node_without_the_package_is_watched_all_the_same(
    ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[3]
    hidden = [str(root), str(root / "plugins"), str(root / "exporters")]
    (tmp_path / "sitecustomize.py").write_text(HIDE.format(hidden=hidden))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import ray_sentinel"
    bare = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd="/", check=False, timeout=30
    )
    assert bare.returncode != 0, "the package must be hidden for this test to mean anything"
    try:
        ray_cluster.add("127.0.0.6")
    finally:
        monkeypatch.delenv("PYTHONPATH")
    try:
        ray_cluster.up(tmp_path / "log")
        with ray_cluster.connected() as ray:
            watched = Watched(ray)
            status = watched.status()
            assert "127.0.0.6" in {node.address for node in status.nodes}
            assert not status.unwatched

            def collecting() -> Any:
                (node,) = [n for n in watched.status().nodes if n.address == "127.0.0.6"]
                return [c for c in node.collectors if c.name == "host" and c.success]

            eventually(collecting, "its collectors were shipped with their entry points")
        ray_cluster.down()
    finally:
        ray_cluster.retire("127.0.0.6")


def test_metrics_of_a_public_address_are_not_served() -> None:
    from ray_sentinel.actors.agent.exporting import Exporting
    from ray_sentinel.config import Config

    exporting = Exporting(Config(), "h", "8.8.8.8")
    assert exporting.url == ""
    assert any("public" in note for note in exporting.notes)

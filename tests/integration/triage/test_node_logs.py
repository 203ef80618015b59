"""A real cluster whose nodes have folders of their own: their logs come through Ray's log API."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.actors.deployment import cluster
from ray_sentinel.actors.node_logs import address_of, fetched
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

OTHER, GONE = "127.0.0.2", "127.0.0.3"
SAID = "ValueError: no such shard"


class Nodes:
    """A head with a dashboard, and nodes with temp folders of their own."""

    def __init__(self, base: Path) -> None:
        from ray.cluster_utils import Cluster

        logging.getLogger("ray").setLevel(logging.ERROR)
        self.head = base / "h"
        self.head.mkdir()
        head = {"num_cpus": 0, "include_dashboard": True, "dashboard_port": 0}
        with contextlib.redirect_stderr(io.StringIO()):
            self.cluster = Cluster(
                initialize_head=True, head_node_args={**head, "temp_dir": str(self.head)}
            )
            self.others: dict[str, Any] = {
                address: self.cluster.add_node(
                    num_cpus=1, node_ip_address=address, temp_dir=str(base / address[-1])
                )
                for address in (OTHER, GONE)
            }

    def speak(self) -> None:
        """An actor on each of the other nodes prints a traceback."""
        with cluster.connect(str(self.cluster.address)) as ray:

            @ray.remote(num_cpus=1)
            class Trainer:
                def step(self) -> str:
                    print(f"Traceback (most recent call last):\n  File 'a.py', line 1\n{SAID}")
                    sys.stdout.flush()
                    return str(ray.util.get_node_ip_address())

            actors = [Trainer.remote() for _ in self.others]
            ray.get([actor.step.remote() for actor in actors], timeout=90)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        return subprocess.run(
            [sys.executable, "-m", "ray_sentinel.cli.main", *arguments],
            capture_output=True, text=True, timeout=120, check=False,
            env={**kept, "RAY_TEMP_DIR": str(self.head)},
        )  # fmt: skip


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    base = Path(tempfile.mkdtemp(prefix="rsn_", dir="/tmp"))
    made = Nodes(base)
    made.speak()
    yield made
    made.cluster.shutdown()
    shutil.rmtree(base, ignore_errors=True)


def test_the_logs_of_another_node(nodes: Nodes) -> None:
    session = nodes.head / "session_latest"
    assert address_of(session) == nodes.cluster.address, "this session's cluster, and no other"
    eventually(lambda: _read(session, OTHER), "the node's agent answers", 60.0)
    ended = nodes.run("logs", "--node", OTHER, "--errors", "--json")
    assert ended.returncode == 0, ended.stderr
    lines = json.loads(ended.stdout)
    assert any(SAID in line["line"]["text"] for line in lines)
    assert all(line["label"].startswith(OTHER) for line in lines)
    own = nodes.run("logs", "--node", str(nodes.cluster.head_node.node_ip_address), "--json")
    assert own.returncode == 0, own.stderr
    assert any(row["file"].endswith("gcs_server.out") for row in json.loads(own.stdout))
    unknown = nodes.run("logs", "--node", "nobody-9")
    assert unknown.returncode == 3
    assert "no node is called nobody-9" in unknown.stderr


def _read(session: Path, node: str) -> bool:
    with fetched(session, node) as (folder, other):
        said = [path.read_text() for path in folder.rglob("worker-*.out")]
        return bool(other.nodes) and any(SAID in text for text in said)


def test_triage_reads_all_nodes_and_names_those_that_it_cannot(nodes: Nodes) -> None:
    nodes.cluster.remove_node(nodes.others.pop(GONE), allow_graceful=False)
    session = nodes.head / "session_latest"

    def lost() -> bool:
        with fetched(session) as (_, other):
            return any(GONE in problem for problem in other.problems)

    eventually(lost, "Ray takes the node for dead", 90.0)
    ended = nodes.run("triage", "--live", "--json")
    answer = json.loads(ended.stdout)
    assert any(line["file"].startswith(OTHER) for line in answer["evidence"]), ended.stdout
    (problem,) = [text for text in answer["problems"] if GONE in text]
    assert "\n" not in problem
    alone = json.loads(nodes.run("triage", "--live", "--this-node", "--json").stdout)
    assert alone["problems"] == []

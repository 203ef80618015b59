"""Nodes found bad: told, kept over SIGKILL, and left out of the command's next attempts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ray_sentinel.model.incident import Culprit, Incident, Verdict
from ray_sentinel.report.contract import incident_dict
from ray_sentinel.supervise.bad_nodes import BadNode
from ray_sentinel.supervise.parts import Parts, Sighting
from ray_sentinel.supervise.policy import Failure, Policy
from ray_sentinel.supervise.run_folder import State
from ray_sentinel.supervise.supervisor import Supervisor
from ray_sentinel.supervise.task import RunTask
from tests.support.coordinator_page import Page
from tests.support.ray_cluster import RayCluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

# Writes its arguments down, waits until it is told how to end, and ends so.
SCRIPT = """#!/bin/sh
a=$RAY_SENTINEL_ATTEMPT
echo "$RAY_SENTINEL_BAD_NODES|$*" > "$FOLDER/args.part$a"
mv "$FOLDER/args.part$a" "$FOLDER/args$a"
while [ ! -e "$FOLDER/end$a" ]; do sleep 0.05; done
cat "$FOLDER/end$a"
test ! -s "$FOLDER/end$a"
"""
SECONDS = 60.0
DRAINED = "127.0.0.8"
"""A node more than the cluster has for all."""


@pytest.fixture
def script(tmp_path: Path) -> list[str]:
    """The command, with its placeholders."""
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return [str(path), "--exclude={bad_nodes}", "train"]


def end(folder: Path, attempt: int, said: str) -> None:
    """Have an attempt end: with status 0 where it is to say nothing, else 1."""
    (folder / "part").write_text(said)
    (folder / "part").rename(folder / f"end{attempt}")


def test_two_attempts_with_what_is_seen_and_what_the_output_says(
    tmp_path: Path, script: list[str]
) -> None:
    said: list[str] = []
    told: list[tuple[str, str]] = []
    drained: list[str] = []

    def explain(folder: Path, state: State) -> Failure | None:
        printed = (folder / "output.log").read_text()
        if state.code == 0:
            return None
        blamed = BadNode(host=printed.split()[-1], why="its GPU is lost")
        return Failure(kind="gpu-lost", text=printed.strip(), nodes=(blamed,))

    def watch(since: float) -> Sighting:
        return Sighting(bad_nodes=(BadNode(host="n3", why="it is lost", at=since),))

    def drain(node: BadNode) -> str:
        drained.append(node.host)
        return f"{node.host} is drained"

    end(tmp_path, 0, "GPU lost on n7")
    end(tmp_path, 1, "")
    result = Supervisor(
        RunTask(
            argv=tuple(script),
            job="job",
            folder=tmp_path / "run",
            environ={**os.environ, "FOLDER": str(tmp_path)},
        ),
        Policy(retry_delay=0.1),
        Parts(
            explain=explain,
            scan=lambda path: pytest.fail("no checkpoints"),
            watch=watch,
            say=said.append,
            notify=lambda event, text: told.append((event, text)),
            drain=drain,
        ),
    ).run()
    assert (result.success, result.total_retries) == (True, 1)
    assert {node.host for node in result.bad_nodes} == {"n3", "n7"}
    assert (tmp_path / "args0").read_text() == "|train\n"
    assert (tmp_path / "args1").read_text() in (
        "n3,n7|--exclude=n3,n7 train\n",
        "n7,n3|--exclude=n7,n3 train\n",
    )
    assert sorted(drained) == ["n3", "n7"]
    assert [event for event, _ in told if event != "bad-node"] == ["restart", "success"]
    assert "bad node n7: its GPU is lost" in "\n".join(text for _, text in told)


def lost(host: str) -> Incident:
    culprit = Culprit(rank=1, host=host, pid=7, reason="its node is lost")
    now = time.time()
    return Incident(
        id="4",
        job="job",
        attempt=0,
        kind="node-lost",
        severity="critical",
        state="confirmed",
        summary=f"node {host} is lost",
        rule="node.lost",
        suspected_at=now,
        confirmed_at=now,
        verdict=Verdict(kind="node-lost", summary="", culprits=(culprit,)),
    )


def test_a_killed_supervisor_still_knows_and_a_new_run_begins_without(
    tmp_path: Path, script: list[str], page: Page
) -> None:
    incidents: list[dict[str, Any]] = page.answer
    started: list[subprocess.Popen[bytes]] = []

    def run() -> subprocess.Popen[bytes]:
        options = ["--job", "job", "--json", "--page", page.link, "--retry-delay", "0.2"]
        argv = [sys.executable, "-m", "ray_sentinel.cli.main", "run", *options, "--", *script]
        log = {"RAY_SENTINEL_LOG_DIR": str(tmp_path / "log"), "FOLDER": str(tmp_path)}
        started.append(
            subprocess.Popen(
                argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **log},
            )
        )
        return started[-1]

    def arguments(attempt: int) -> Callable[[], str]:
        path = tmp_path / f"args{attempt}"
        return lambda: path.read_text() if path.exists() else ""

    try:
        first = run()
        eventually(arguments(0), "the first attempt", SECONDS)
        incidents.append(incident_dict(lost("n7")))
        end(tmp_path, 0, "Connection closed by peer")
        eventually(arguments(1), "the second attempt", SECONDS)
        assert arguments(1)() == "n7|--exclude=n7 train\n"
        incidents.clear()
        first.kill()
        _, seen = first.communicate(timeout=SECONDS)
        assert b"bad node n7: its node is lost (incident 4)" in seen
        second = run()
        end(tmp_path, 1, "Connection closed by peer")
        eventually(arguments(2), "the third attempt", SECONDS)
        assert arguments(2)() == "n7|--exclude=n7 train\n"
        end(tmp_path, 2, "")
        out, seen = second.communicate(timeout=SECONDS)
        assert second.returncode == 0, seen.decode()
        (node,) = json.loads(out)["bad_nodes"]
        assert (node["host"], node["why"]) == ("n7", "its node is lost (incident 4)")
        old = msgspec.structs.replace(lost("n7"), suspected_at=time.time() - 3600)
        incidents.append(incident_dict(old))
        end(tmp_path, 3, "")
        out, seen = run().communicate(timeout=SECONDS)
        assert json.loads(out)["bad_nodes"] == [], seen.decode()
        assert arguments(3)() == "|train\n"
    finally:
        for one in started:
            if one.poll() is None:
                one.terminate()
                one.communicate(timeout=SECONDS)


def test_a_drained_ray_node_leaves_the_cluster_and_the_head_is_spared(
    ray_cluster: RayCluster,
) -> None:
    def drain(host: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ray_sentinel.actors.deployment.draining", host, "Xid 79"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=ray_cluster.environ(),
            check=False,
        )

    def living() -> set[str]:
        with ray_cluster.connected() as ray:
            return {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}

    ray_cluster.add(DRAINED)
    try:
        with ray_cluster.connected() as ray:
            (head,) = (
                node["NodeManagerAddress"]
                for node in ray.nodes()
                if "node:__internal_head__" in node["Resources"]
            )
        done = drain(DRAINED)
        assert done.returncode == 0, done.stderr
        spared = drain(head)
        assert spared.returncode == 1
        assert "is the head" in spared.stderr
        assert "no living node" in drain("192.0.2.9").stderr
        # Nothing runs there, so its raylet ends.
        eventually(lambda: DRAINED not in living(), "the drained node leaves", 90.0)
        assert "127.0.0.2" in living()
    finally:
        ray_cluster.remove(DRAINED)
        eventually(lambda: DRAINED not in living(), "Ray takes it for dead", 60.0)

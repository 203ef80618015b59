"""A real job of ``ray job submit``, watched by its id; its GPUs are never asked for."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import kubectl
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

HEAD = """
import socket, sys
from ray.cluster_utils import Cluster
# Jobs are started by the node's dashboard agent, whose usual port another cluster may have.
with socket.create_server(("127.0.0.1", 0)) as probe:
    agent = probe.getsockname()[1]
cluster = Cluster(
    initialize_head=True,
    head_node_args={"num_cpus": 2, "num_gpus": 2, "include_dashboard": True, "dashboard_port": 0,
                    "dashboard_agent_listen_port": agent, "temp_dir": sys.argv[1]},
)
print("READY", cluster.address, agent, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
TRAIN = """
import os, sys, time
for step in range(1, 5):
    print(f"step: {step} loss: {1 / step} time: 0.1s tokens/s: 1000", flush=True)
    time.sleep(0.1)
deadline = time.time() + 900
while not os.path.exists(sys.argv[1]) and time.time() < deadline:
    time.sleep(0.1)
"""


class Head(NamedTuple):
    """A cluster of one node, with its dashboard."""

    address: str
    temp: Path


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    temp = Path(tempfile.mkdtemp(prefix="rsm_", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        # Ray's own commands know no token of a cluster that was begun by ray.init().
        patch.setenv("RAY_AUTH_MODE", "disabled")
        child = subprocess.Popen(
            [sys.executable, "-c", HEAD, str(temp / "ray")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert child.stdout is not None
        ready = next((line for line in child.stdout if line.startswith("READY")), "")
        assert ready, "Ray did not start"
        _, address, agent = ready.split()
        patch.setenv("RAY_ADDRESS", address)
        patch.setenv("RAY_TMPDIR", str(temp))
        place = address.split(":")[0], int(agent)
        eventually(lambda: listens(place), "Ray's agent listens", 120.0)
        yield Head(address, temp)
        child.communicate("", timeout=60)
    shutil.rmtree(temp, ignore_errors=True)


def listens(place: tuple[str, int]) -> bool:
    with socket.socket() as client:
        return client.connect_ex(place) == 0


def submitted(script: Path, done: Path) -> str:
    """The job's id; empty while Ray's agent on the node is still starting."""
    name = f"raysubmit_{time.monotonic_ns()}"
    submit = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--no-wait"]
    submit += ["--submission-id", name, "--", sys.executable, str(script), str(done)]
    ended = subprocess.run(submit, check=False, capture_output=True, timeout=120)
    return name if ended.returncode == 0 else ""


def test_a_submitted_job_is_watched_by_its_id(head: Head, tmp_path: Path) -> None:
    from ray_sentinel import monitor

    script, done = tmp_path / "train.py", tmp_path / "done"
    script.write_text(textwrap.dedent(TRAIN))
    job = eventually(lambda: submitted(script, done), "Ray's agent takes the job", 120.0, every=1.0)

    eventually(lambda: monitor.get_current_step("", job) == 4, "four steps", 90.0, every=1.0)
    assert monitor.check_job_status("", job) == "RUNNING"
    progress = monitor.get_progress("", job)
    assert progress["tokens_per_second"] == 1000
    assert not monitor.detect_stall("", job, stagnation_threshold=3600)
    assert monitor.detect_stall("", job, stagnation_threshold=0)
    watched = monitor.monitor_job("", job, check_interval=0.1, timeout=0.1)
    assert watched["timed_out"]
    assert watched["status"] == "RUNNING"

    resources = monitor.verify_ray_resources("")
    assert resources["healthy"], resources["error"]
    assert (resources["gpus_available"], resources["gpus_used"]) == (2, 0)
    report = monitor.get_training_health("", str(tmp_path))
    assert not report["healthy"]
    assert any("allotted none of its 2 GPUs" in issue for issue in report["issues"])

    health = subprocess.run(
        [sys.executable, "-m", "ray_sentinel.cli.main", "health", "--json"],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert health.returncode == 1, health.stderr
    assert f"{job} is RUNNING" in json.loads(health.stdout)["verdict"]

    done.touch()
    ended = monitor.monitor_job("", job, check_interval=1.0, timeout=60)
    assert ended["status"] == "SUCCEEDED"
    assert ended["final_step"] == 4
    assert not ended["timed_out"]
    assert monitor.check_job_status("", "raysubmit_unknown") == "UNKNOWN"


RESUMED = """
import os, pathlib, sys, time
start = int(os.environ.get("RAY_SENTINEL_STEP", "0"))
for step in range(start + 1, 7):
    print(f"step: {step} loss: {1 / step} time: 0.1s", flush=True)
    folder = pathlib.Path(sys.argv[1], f"step_{step}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.pt").write_bytes(b"whole")
    if step == 3 and not start:
        raise RuntimeError("bad gradient")
    while step == 5 and start == 3:
        time.sleep(0.2)
"""


def test_a_job_in_a_pod_is_restarted_when_it_fails_and_when_it_stalls(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray_sentinel import monitor

    kubectl.install(tmp_path, monkeypatch)
    monkeypatch.setenv("RAY_SENTINEL_LOG_DIR", str(tmp_path / "logs"))
    script, saved = tmp_path / "train.py", tmp_path / "saved"
    script.write_text(textwrap.dedent(RESUMED))
    config = {
        "entrypoint": f"{sys.executable} {script} {saved}",
        "metadata": {"name": "llama"},
    }
    first = monitor.submit_job_with_resume("train-head", "", config)
    # Each look at a job in a pod starts a Python there that imports Ray.
    result = monitor.auto_restart(
        "train-head", "llama", str(saved), 3, 0.1, stagnation_threshold=4, check_interval=4.0
    )
    assert result["success"], result["reason"]
    assert (result["final_step"], result["total_retries"]) == (6, 2)
    assert result["job_id"] != first
    assert monitor.check_job_status("train-head", first) == "FAILED"
    ended = monitor.monitor_job("train-head", result["job_id"], 4.0, 60)
    assert (ended["status"], ended["final_step"]) == ("SUCCEEDED", 6)
    (log,) = (tmp_path / "logs/run/llama").glob("monitor-*.log")
    text = log.read_text()
    assert f"from {saved}/step_3" in text
    assert f"from {saved}/step_5" in text
    assert "llama succeeded" in text

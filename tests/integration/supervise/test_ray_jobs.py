"""Jobs of ``ray job submit`` on a real Ray with its dashboard."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ray_sentinel
from ray_sentinel.errors import UnreachableError, UsageError
from ray_sentinel.job_submission import check_job_status, get_current_step

pytestmark = pytest.mark.integration

TRAIN = Path(__file__).parents[2] / "support/supervised_train.py"
SECONDS = 120.0


@pytest.fixture(scope="module")
def dashboard() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    # Jobs are started by the node's dashboard agent, whose usual port another cluster may have.
    with socket.create_server(("127.0.0.1", 0)) as server:
        agent = server.getsockname()[1]
    arguments = {"num_cpus": 2, "include_dashboard": True, "dashboard_port": 0}
    with contextlib.redirect_stderr(io.StringIO()):
        cluster = Cluster(
            initialize_head=True,
            head_node_args={**arguments, "dashboard_agent_listen_port": agent},
        )
    yield f"http://{cluster.head_node.webui_url}"
    cluster.shutdown()


def until_ended(job: str, address: str) -> dict[str, object]:
    return ray_sentinel.monitor_job(job, check_interval=0.5, timeout=SECONDS, address=address)


def entrypoint(folder: Path, *resume: str) -> str:
    return " ".join([sys.executable, str(TRAIN), str(folder), "30", *resume])


def test_a_failed_job_goes_on_from_its_checkpoint(dashboard: str, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    config = {
        "entrypoint": entrypoint(tmp_path / "saved", "{checkpoint}"),
        "runtime_env": {"env_vars": {"FAULTS": "0:12:raise"}},
    }
    job = ray_sentinel.submit_job_with_resume("", config, address=dashboard)
    ended = until_ended(job, dashboard)
    assert (ended["status"], ended["final_step"]) == ("FAILED", 12)
    again = ray_sentinel.restart_job(job, tmp_path / "saved", address=dashboard)
    ended = until_ended(again, dashboard)
    assert (ended["status"], ended["final_step"]) == ("SUCCEEDED", 30)
    assert check_job_status(again, dashboard) == "SUCCEEDED"
    assert get_current_step(again, dashboard) == 30


def test_a_job_that_fails_is_restarted_by_the_supervisor(dashboard: str, tmp_path: Path) -> None:
    config = {
        "entrypoint": entrypoint(tmp_path / "saved", "{checkpoint}"),
        "runtime_env": {"env_vars": {"FAULTS": "0:12:raise,1:22:kill"}},
    }
    job = ray_sentinel.submit_job_with_resume("", config, address=dashboard)
    told = tmp_path / "told"
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "ray_sentinel.cli.main", "run", "--json", "--ray-job", job),
            *("--ray-address", dashboard, "--page", "", "--retry-delay", "0.2"),
            *("--checkpoint-dir", str(tmp_path / "saved")),
            *("--notify-command", f"tee -a {told}"),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["final_step"], result["total_retries"]) == (30, 2)
    assert result["job_id"] != job
    assert f"from {tmp_path / 'saved/step_20'}" in ended.stderr
    assert "success" in told.read_text()


def test_following_for_a_while_only(dashboard: str, tmp_path: Path) -> None:
    config = {
        "entrypoint": entrypoint(tmp_path / "saved"),
        "runtime_env": {"env_vars": {"PACE": "30"}},
    }
    job = ray_sentinel.submit_job_with_resume("", config, address=dashboard)
    begun = time.monotonic()
    found = ray_sentinel.monitor_job(job, 0.2, timeout=1.0, address=dashboard)
    assert found["status"] in ("PENDING", "RUNNING")
    assert time.monotonic() - begun < 30
    again = ray_sentinel.restart_job(job, address=dashboard)
    assert check_job_status(job, dashboard) == "STOPPED"
    ray_sentinel.restart_job(again, address=dashboard)


def test_what_is_not_there(dashboard: str) -> None:
    assert check_job_status("raysubmit_none", dashboard) == "UNKNOWN"
    with pytest.raises(UsageError, match="raysubmit_none"):
        ray_sentinel.restart_job("raysubmit_none", address=dashboard)
    with pytest.raises(UsageError, match="entrypoint"):
        ray_sentinel.submit_job_with_resume("", {}, address=dashboard)
    with pytest.raises(UsageError, match="entrypint"):
        ray_sentinel.submit_job_with_resume("", {"entrypoint": "x", "entrypint": 1}, dashboard)
    with pytest.raises(UnreachableError, match="dashboard"):
        check_job_status("x", "http://127.0.0.1:9")

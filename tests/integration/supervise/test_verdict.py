"""From the coordinator's verdict to a restart: a real hang of one of two ranks under ``run``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.found_job import job_of, training
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SUPPORT = Path(__file__).parents[2] / "support"
TRAIN = SUPPORT / "hanging_train.py"
SECONDS = 200.0


@pytest.fixture
def watched(watched_by_files: Watched) -> Watched:
    return watched_by_files


@pytest.fixture
def earlier(watched: Watched) -> set[str]:
    """The incidents that others have left."""
    return {one.id for one in watched.ask("incidents", tuple[Incident, ...])}


@pytest.fixture
def ended(ray_cluster: RayCluster, earlier: set[str], tmp_path: Path) -> tuple[Any, str]:
    """The result of the supervised job, and what people saw."""
    saved = tmp_path / "saved"
    # Whose page that is, ``run`` finds out by itself.
    options = ["--job", "hanging", "--json"]
    options += ["--retry-delay", "0.5", "--checkpoint-dir", str(saved)]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", *meeting]
    train = [sys.executable, *torchrun, str(TRAIN), str(saved), "60", "{checkpoint}"]
    started = subprocess.Popen(
        [sys.executable, "-m", "ray_sentinel.cli.main", "run", *options, "--", *train],
        env=ray_cluster.environ(
            RAY_SENTINEL_LOG_DIR=str(tmp_path / "log"),
            GLOO_SOCKET_IFNAME="lo",
            OMP_NUM_THREADS="1",
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, seen = started.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        started.terminate()
        _, seen = started.communicate(timeout=60)
        raise AssertionError(f"it did not end: {seen.decode()[-4000:]}") from None
    finally:
        # Ended above, but for a supervisor that does not obey: its keeper goes with its command.
        for state in (tmp_path / "log/run/hanging").glob("attempt-*/state.json"):
            told = json.loads(state.read_text())
            if told.get("ended_at") is None:
                os.kill(told["keeper"], signal.SIGTERM)
    assert started.returncode == 0, seen.decode()
    return json.loads(out), seen.decode()


def test_a_hang_is_named_captured_and_restarted(
    ended: tuple[Any, str], watched: Watched, earlier: set[str], tmp_path: Path
) -> None:
    result, seen = ended
    assert (result["final_step"], result["total_retries"]) == (60, 1), seen
    found = watched.ask("incidents", tuple[Incident, ...])
    # The ends of earlier tests' jobs may be told late.
    (incident,) = [one for one in found if one.job == "hanging" and one.id not in earlier]
    assert incident.verdict is not None
    assert [culprit.rank for culprit in incident.verdict.culprits] == [1]
    assert incident.kind == "host-stuck"
    assert f"(incident {incident.id})" in seen
    assert f"the evidence is in {incident.bundle}" in seen
    # Captured before the restart: the culprit's own stack is there.
    pid = incident.verdict.culprits[0].pid
    (stack,) = Path(incident.bundle).glob(f"pyspy_*_{pid}.txt")
    assert "hanging_train.py" in stack.read_text()
    assert "attempt 1 starts from" in seen
    first = (tmp_path / "log/run/hanging/attempt-0001/output.log").read_text()
    assert "step 31 " in first
    assert "step 30 " not in first


@pytest.mark.usefixtures("ray_train")
def test_a_job_that_goes_by_another_name_is_restarted_too(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path
) -> None:
    """The workers of a cluster that runs already are told nothing by the run."""
    folder, seen = tmp_path / "job", tmp_path / "seen"
    folder.mkdir()
    options = ["--job", "supervised", "--page", watched.status().page, "--quiet"]
    options += ["--retry-delay", "0.5", "--grace", "5"]
    train = [
        sys.executable,
        "-W",
        "ignore",
        str(SUPPORT / "train_job.py"),
        str(folder),
        "named",
        "2",
    ]
    with open(seen, "wb") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", "ray_sentinel.cli.main", "run", *options, "--", *train],
            env=ray_cluster.environ(
                RAY_SENTINEL_LOG_DIR=str(tmp_path / "log"),
                RAY_TRAIN_V2_ENABLED="1",
                GLOO_SOCKET_IFNAME="lo",
                OMP_NUM_THREADS="1",
            ),
            stderr=output,
        )
    try:
        pids = training(folder, 2, seen)
        job_of(watched, pids)
        eventually(lambda: "knows the job as named" in seen.read_text(), "the name", 60.0)
        os.kill(pids[1], signal.SIGSTOP)
        eventually(lambda: "attempt 1 starts" in seen.read_text(), "another attempt", 120.0)
        assert "(incident " in seen.read_text()
    finally:
        started.terminate()
        started.wait(timeout=60)

"""Work aside of the supervisor's loop that hangs, and ends when its attempt is long over."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ray_sentinel.logs.checkpoints import scan_checkpoints
from ray_sentinel.supervise import supervisor
from ray_sentinel.supervise.parts import Parts
from ray_sentinel.supervise.policy import Failure, Policy
from ray_sentinel.supervise.run_folder import State
from ray_sentinel.supervise.supervisor import Supervisor
from ray_sentinel.supervise.task import RunTask
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

TRAIN = """
if [ -e begun ]; then touch again; until [ -e told ]; do sleep 0.1; done; sleep 1; exit 0; fi
touch begun; exit 3
"""


def test_why_an_attempt_ended_is_known_when_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "EXPLAIN_SECONDS", 0.5)
    late = threading.Event()
    said: list[str] = []

    def explain(folder: Path, state: State) -> Failure | None:
        if state.code == 0:
            return None
        assert late.wait(60)
        (tmp_path / "told").touch()
        return Failure(kind="exit", text="late", code=3)

    def release() -> None:
        eventually((tmp_path / "again").exists, "the next attempt runs")
        late.set()

    task = RunTask(
        argv=("sh", "-c", TRAIN),
        job="late",
        folder=tmp_path / "log",
        cwd=str(tmp_path),
        environ=dict(os.environ),
    )
    policy = Policy(max_retries=1, retry_delay=0.1)
    parts = Parts(explain=explain, scan=scan_checkpoints, say=said.append)
    threading.Thread(target=release, daemon=True).start()
    result = Supervisor(task, policy, parts).run()
    assert (result.success, result.total_retries) == (True, 1), said

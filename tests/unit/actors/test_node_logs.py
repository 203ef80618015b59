"""Other nodes' logs: which files are asked for, of which cluster, and what is said of the rest."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ray_sentinel.actors import node_logs
from ray_sentinel.actors.node_logs import address_of, fetched

WORKER = "worker-" + "ab" * 28 + "-01000000-4242"


def test_only_logs_of_the_job_and_no_name_that_leads_out() -> None:
    chosen = node_logs.chosen(
        [
            f"{WORKER}.out", f"{WORKER}.err", "raylet.out", "dashboard.log", "job-driver-a.log",
            "../../etc/raylet.out", "/etc/raylet.out", f"old/../../{WORKER}.out", "runtime_env.log",
        ]
    )  # fmt: skip
    assert chosen == [f"{WORKER}.err", f"{WORKER}.out", "job-driver-a.log", "raylet.out"]


@pytest.mark.parametrize("name", ["10.0.0.3", "gpu-3", "a1b2c3d4", "named"])
def test_a_node_by_its_address_its_host_its_id_and_its_name(name: str) -> None:
    node = SimpleNamespace(
        node_id=bytes.fromhex("a1b2c3d4" * 7),
        node_manager_address="10.0.0.3",
        node_manager_hostname="gpu-3",
        node_name="named",
    )
    assert node_logs.is_meant(node, name)
    assert not node_logs.is_meant(node, "10.0.0.30")
    assert not node_logs.is_meant(node, "a1b")


def test_a_node_that_keeps_its_logs_here_is_this_one() -> None:
    own = {"node_manager_hostname": socket.gethostname()}
    session = "/tmp/ray/session_1"
    same = SimpleNamespace(**own, temp_dir="/tmp/ray", session_dir="")
    assert node_logs.writes_into(same, session)
    assert node_logs.writes_into(SimpleNamespace(**own, temp_dir="", session_dir=session), session)
    other = SimpleNamespace(**own, temp_dir="/tmp/n2", session_dir="/tmp/n2/session_1")
    assert not node_logs.writes_into(other, session)
    assert not node_logs.writes_into(SimpleNamespace(**own), session)
    away = SimpleNamespace(node_manager_hostname="gpu-9", temp_dir="/tmp/ray", session_dir=session)
    assert not node_logs.writes_into(away, session)


def test_the_cluster_is_the_sessions_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    session = tmp_path / "session_2025"
    session.mkdir()
    (tmp_path / "session_latest").symlink_to(session)
    nothing = tmp_path / "proc"
    nothing.mkdir()
    assert address_of(tmp_path / "session_latest", proc=nothing) == ""
    with fetched(session) as (_, other):
        assert len(other.problems) == 1
        assert "--address" in other.problems[0]
    (tmp_path / "ray_current_cluster").write_text("10.0.0.1:6379")
    assert address_of(tmp_path / "session_latest", proc=nothing) == "10.0.0.1:6379"
    assert address_of(session, "10.0.0.9:6379") == "10.0.0.9:6379"


def test_a_control_store_that_does_not_answer_costs_seconds_and_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with fetched(tmp_path, address=f"127.0.0.1:{silent.getsockname()[1]}") as (folder, other):
            (problem,) = other.problems
            assert "does not" in problem or "nothing answered" in problem
            assert "\n" not in problem
            assert os.stat(folder).st_mode & 0o777 == 0o700
        assert time.monotonic() - began < 10.0
    assert not folder.exists()

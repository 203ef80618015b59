"""What paths say, and which files are logs."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

import pytest

from ray_sentinel.errors import InputError, UnreachableError
from ray_sentinel.logs.checkpoints import newest_checkpoint, scan_checkpoints
from ray_sentinel.logs.find import find_logs, live_session
from ray_sentinel.logs.names import file_kind, file_origin, is_host, is_log_name

WORKER = "worker-" + "ab" * 28 + "-01000000-4242.err"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (WORKER, "worker"),
        ("session_x/logs/raylet.out", "raylet"),
        ("raylet.2.err", "raylet"),
        ("gcs_server.out.1", "gcs"),
        ("monitor.log", "monitor"),
        ("job-driver-raysubmit_1.log", "driver"),
        ("python-core-worker-abcd_123.log", "ray"),
        ("dashboard.log", "ray"),
        ("rank-3.log", "rank"),
        ("dmesg-node1.txt", "kernel"),
        ("nccl_debug.node1.4242", "nccl"),
        ("slurm-778.out", "slurm"),
        ("metrics_exporter/node1.log", "agent"),
        ("kimi25_3node_train_20260220_020357.log", "log"),
    ],
)
def test_kinds(path: str, kind: str) -> None:
    assert file_kind(PurePath(path)) == kind


def test_origins() -> None:
    worker = file_origin(PurePath(WORKER), ("ray_logs", "node007"))
    assert (worker.pid, worker.host) == (4242, "node007")
    assert file_origin(PurePath("rank-3.log"), ()).rank == 3
    assert file_origin(PurePath("job_rank_12.out"), ()).rank == 12
    assert file_origin(PurePath("stderr.log"), ("run", "attempt_0", "5")).local_rank == 5
    assert file_origin(PurePath("raylet.out"), ("10.0.0.7",)).ip == "10.0.0.7"
    assert file_origin(PurePath("stdout.log"), ("rank_4",)).rank == 4


@pytest.mark.parametrize(
    "part", ["node001", "10.0.0.2", "gpu-3-2", "ip-10-0-0-2", "train-worker-0"]
)
def test_hosts(part: str) -> None:
    assert is_host(part)


@pytest.mark.parametrize(
    "part", ["logs", "session_2025-01-02", "attempt_0", "rank_3", "12", "step_100"]
)
def test_no_hosts(part: str) -> None:
    assert not is_host(part)


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("train.log", True), ("train.log.1.gz", True), ("worker.err", True), ("stdout", True),
        ("model.safetensors", False), ("weights.pt.gz", False), ("_dump_3", False),
        ("events.out.tfevents.17.node", False), ("config.yaml", False), ("train.py", False),
        ("metrics_agent_port_" + "3d" * 28, False), ("gcs_server_port_" + "0a" * 28, False),
        ("node_ip_address.json", False), ("prom_metrics_service_discovery.json", False),
        ("free_port_3.log", True), ("report.json", True),
    ],
)  # fmt: skip
def test_log_names(name: str, log: bool) -> None:
    assert is_log_name(PurePath(name)) is log


def test_a_ray_temp_dir(tmp_path: Path) -> None:
    logs = tmp_path / "session_2025" / "logs"
    logs.mkdir(parents=True)
    (logs / WORKER).write_text("x\n")
    (logs / "raylet.out").write_text("x\n")
    (logs / "empty.log").write_text("")
    (tmp_path / "session_latest").symlink_to(tmp_path / "session_2025")
    (logs / "broken.log").symlink_to(logs / "gone")
    found = [item.file.label for item in find_logs(tmp_path)]
    assert found == [f"session_2025/logs/{name}" for name in ("raylet.out", WORKER)]
    assert len(find_logs(tmp_path / "session_latest")) == 2


def test_a_single_file_and_special_files(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("any name will do if it is asked for\n")
    assert find_logs(tmp_path / "train.py")[0].file.label == "train.py"
    os.mkfifo(tmp_path / "pipe.log")
    with pytest.raises(InputError, match="neither"):
        find_logs(tmp_path / "pipe.log")
    with pytest.raises(InputError, match="no log files"):
        find_logs(tmp_path)


def test_no_live_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_TEMP_DIR", raising=False)
    monkeypatch.setattr("ray_sentinel.logs.find.LIVE_SESSION", tmp_path / "none")
    with pytest.raises(UnreachableError, match="give the Ray temp dir"):
        live_session()
    (tmp_path / "ray" / "session_latest").mkdir(parents=True)
    assert live_session() == tmp_path / "ray" / "session_latest"
    (tmp_path / "given" / "session_latest").mkdir(parents=True)
    monkeypatch.setenv("RAY_TEMP_DIR", str(tmp_path / "given"))
    assert live_session() == tmp_path / "given" / "session_latest"


def test_a_session_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TEMP_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(UnreachableError, match="--temp-dir"):
        live_session(tmp_path)
    (tmp_path / "session_latest" / "logs").mkdir(parents=True)
    assert live_session(tmp_path) == tmp_path / "session_latest"
    assert live_session(tmp_path / "session_latest") == tmp_path / "session_latest"


def test_the_logs_of_pods(tmp_path: Path) -> None:
    uid = "0b1c2d3e-aaaa-bbbb-cccc-1234567890ab"
    for rank in (0, 1):
        folder = tmp_path / "pods" / f"team-a_trainer-worker-{rank}_{uid}" / "trainer"
        folder.mkdir(parents=True)
        line = f"2025-05-01T10:00:00.123456789Z stderr F [rank{rank}]: step {rank} loss 2.0\n"
        (folder / "0.log").write_text(line)
        (folder / "0.log.20250501-100000").write_text(line)
    links = tmp_path / "containers"
    links.mkdir()
    name = f"trainer-worker-0_team-a_trainer-{'ab' * 32}.log"
    (links / name).symlink_to(
        tmp_path / "pods" / f"team-a_trainer-worker-0_{uid}" / "trainer" / "0.log"
    )
    hosts = [item.file.origin.host for item in find_logs(tmp_path / "pods")]
    assert hosts == ["trainer-worker-0"] * 2 + ["trainer-worker-1"] * 2
    assert find_logs(links)[0].file.origin.host == "trainer-worker-0"


def test_scanning_checkpoints(tmp_path: Path) -> None:
    for step in (100, 200):
        (tmp_path / f"step_{step}").mkdir()
        (tmp_path / f"step_{step}" / "model.pt").write_bytes(b"x" * 10)
    (tmp_path / "latest").symlink_to("step_100")
    facts = scan_checkpoints(tmp_path)
    assert [c.step for c in facts.checkpoints] == [100, 200]
    assert facts.latest_step == 100
    newest = newest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.step == 200
    with pytest.raises(InputError, match="no folder"):
        scan_checkpoints(tmp_path / "gone")

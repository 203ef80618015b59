"""The monitor's functions for a pod, through a stand-in for kubectl that runs everything here."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ray_sentinel
from ray_sentinel import monitor
from ray_sentinel.clock import FakeClock
from ray_sentinel.errors import UnreachableError, UsageError
from ray_sentinel.monitor import activity, jobs
from ray_sentinel.monitor.activity import JobLog, logged
from ray_sentinel.monitor.pod_jobs import PodClient, PodFiles
from ray_sentinel.monitor.shell import Shell
from ray_sentinel.supervise.checkpoint_choice import choose
from ray_sentinel.supervise.ray_jobs import Jobs
from tests.support import kubectl


@pytest.fixture
def pod_bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_SENTINEL_LOG_DIR", str(tmp_path / "logs"))
    return kubectl.install(tmp_path, monkeypatch)


def program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def saved(folder: Path, *steps: int) -> None:
    for step in steps:
        (folder / f"step_{step}").mkdir(parents=True)
        (folder / f"step_{step}/model.safetensors").write_bytes(b"\x02" + b"\0" * 7 + b"{}")


def test_the_latest_good_checkpoint_is_chosen_inside_the_pod(tmp_path: Path, pod_bin: Path) -> None:
    folder = tmp_path / "saved"
    saved(folder, 100, 500, 1000)
    (folder / "step_1000/model.safetensors").write_bytes(b"\xff" * 9)
    (folder / "latest").symlink_to("step_1000")
    files = PodFiles(Shell("head", "ml"))
    found = choose((folder,), (), files.scan, files.problem_at)
    assert found.checkpoint is not None
    assert found.checkpoint.path == str(folder / "step_500")
    assert "was cut off" in found.skipped[0]
    assert "-n ml head" in (tmp_path / "calls").read_text()


def test_a_file_that_vanishes_while_the_folder_is_listed_is_no_failure(
    tmp_path: Path, pod_bin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "saved", 10)
    program(pod_bin, "find", f'{shutil.which("find")} "$@"; exit 1')
    monkeypatch.setenv("PATH", f"{pod_bin}{os.pathsep}{os.environ['PATH']}")
    files = PodFiles(Shell("head"))
    assert files.scan(tmp_path / "saved").latest_complete is not None
    with pytest.raises(UnreachableError, match="nothing-there"):
        files.scan(tmp_path / "nothing-there")


def test_a_pod_that_is_out_of_reach_is_waited_for(tmp_path: Path, pod_bin: Path) -> None:
    clock = FakeClock()
    files = PodFiles(Shell("gone"), clock, patience=12.0)
    with pytest.raises(UnreachableError, match="not found"):
        files.scan(tmp_path)
    assert clock.monotonic() >= 12.0


def test_what_ray_or_the_pod_says_is_told_apart(
    pod_bin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnreachableError, match="not found"):
        Jobs("pod gone", PodClient(Shell("gone"))).status("raysubmit_x")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    with pytest.raises(UnreachableError):
        Jobs("pod head", PodClient(Shell("head"))).status("raysubmit_x")


class Listed:
    """A job API that has these jobs."""

    def __init__(self, *jobs: tuple[str | None, dict[str, str], str, int]) -> None:
        names = ("submission_id", "metadata", "entrypoint", "start_time")
        self._jobs = [SimpleNamespace(**dict(zip(names, job, strict=True))) for job in jobs]

    def list_jobs(self) -> list[Any]:
        return self._jobs


def test_a_job_is_found_by_its_name() -> None:
    found = Jobs(
        "here",
        Listed(
            ("a", {"name": "llama"}, "python train.py", 1),
            ("b", {"job_name": "llama"}, "python train.py", 3),
            ("c", {"ray_sentinel.job": "llama"}, "python train.py", 2),
            ("d", {}, "python train.py --name llama", 9),
            ("e", {}, "python train.py --name qwen-7b --out /ckpt/qwen-7b/x", 4),
            ("f", {}, "python train.py --name qwen-7b-chat", 5),
            (None, {}, "python by_hand.py", 6),
        ),
    )
    assert found.named("llama") == "b", "the latest that is called so, whatever others mention"
    assert found.named("d") == "d"
    assert found.named("qwen-7b") == "e"
    with pytest.raises(UsageError, match="ray-sentinel run"):
        found.named("by_hand")
    with pytest.raises(UsageError, match="no job has"):
        found.named("qwen")


def test_what_cannot_be_reached_is_a_reason(tmp_path: Path, pod_bin: Path) -> None:
    result = monitor.auto_restart("gone", "llama", "/ckpt", 3, 1, 5, 0.1)
    assert (result["success"], result["final_step"], result["total_retries"]) == (False, None, 0)
    assert "not found" in result["reason"]
    (file,) = (tmp_path / "logs/run/llama").glob("monitor-*.log")
    assert "not found" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(UsageError, match="absolute"):
        monitor.auto_restart("head", "llama", "ckpt")
    with pytest.raises(UsageError, match="max_retries"):
        monitor.auto_restart("head", "llama", "/ckpt", max_retries=-1)
    with pytest.raises(UsageError, match="name"):
        monitor.auto_restart("head", "", "/ckpt")


Call = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of a call, and those by name."""


def call(*arguments: Any, **more: Any) -> Call:
    return arguments, more


WITH_POD = (
    call("pod", "job", 1),
    call(head_pod="pod", job_id="job"),
    call("pod", job_id="job"),
    call("", "job", check_interval=1, timeout=2),
)
BY_ID = (
    call("job"),
    call("job", 0.2, timeout=1.0, address="http://x:1"),
    call("job", 30, None, "http://x:1"),
    call(job_id="job", address="http://x:1"),
)


def test_monitor_job_takes_both_calls() -> None:
    assert all(jobs.names_pod(*arguments) for arguments in WITH_POD)
    assert not any(jobs.names_pod(*arguments) for arguments in BY_ID)


def test_a_job_that_is_asked_for_by_its_id_is_asked_of_the_dashboard() -> None:
    for watch in (monitor.monitor_job, ray_sentinel.monitor_job):
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9"):
            watch("job", 0.2, timeout=1.0, address="http://127.0.0.1:9")


def test_a_job_in_a_pod_is_asked_for_there(tmp_path: Path, pod_bin: Path) -> None:
    program(pod_bin, "ray", "echo \"Status for job 'job': SUCCEEDED\"")
    for watch in (monitor.monitor_job, ray_sentinel.monitor_job):
        assert watch("pod", "job", 1, timeout=0.1)["status"] == "SUCCEEDED"
    assert "ray job status job" in (tmp_path / "calls").read_text()


def test_an_efa_device_that_nccl_does_not_mention_is_an_issue(
    tmp_path: Path, pod_bin: Path
) -> None:
    program(pod_bin, "ls", "echo rdmap0s6")
    program(pod_bin, "grep", "exit 1")
    program(pod_bin, "nvidia-smi", "exit 1")
    program(pod_bin, "ray", "exit 1")
    report = monitor.get_training_health("head")
    assert report["efa"]["transport"] == "unknown"
    assert any("NCCL_DEBUG=INFO" in issue for issue in report["issues"])
    program(pod_bin, "grep", "echo 'n:1:1 [0] NCCL INFO NET/OFI Selected provider is efa'")
    report = monitor.get_training_health("head")
    assert report["efa"]["efa_active"]
    assert not any("NCCL_DEBUG=INFO" in issue for issue in report["issues"])


def test_the_gpus_of_a_pod(tmp_path: Path, pod_bin: Path) -> None:
    gpu = "<uuid>GPU-1</uuid><utilization><gpu_util>42 %</gpu_util></utilization>"
    memory = "<fb_memory_usage><total>81559 MiB</total><used>512 MiB</used></fb_memory_usage>"
    answer = f"<nvidia_smi_log><gpu>{gpu}{memory}</gpu></nvidia_smi_log>"
    program(pod_bin, "nvidia-smi", f"echo '{answer}'; echo 'a warning' >&2")
    found = monitor.check_gpu_utilization("head", "ml")
    assert (found["gpu_count"], found["gpu_utilizations"], found["error"]) == (1, [42.0], "")
    assert (found["memory_used"], found["memory_total"]) == ([512.0], [81559.0])
    assert "nvidia-smi -q -x" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("prefix", ["RAY_SENTINEL", "TRAINING_MONITOR"])
def test_variables_say_what_is_logged_and_where(prefix: str, tmp_path: Path) -> None:
    file = tmp_path / "here.log"
    environ = {f"{prefix}_LOG_FILE": str(file), f"{prefix}_LOG_LEVEL": "warning"}
    with logged(environ=environ), logged(environ=environ):
        activity.log.info("quiet")
        activity.log.warning("loud")
    activity.log.warning("later")
    assert [line.split(" ", 2)[2] for line in file.read_text().splitlines()] == ["WARNING loud"]
    with (
        pytest.raises(UsageError, match=f"{prefix}_LOG_LEVEL"),
        logged(environ={f"{prefix}_LOG_LEVEL": "LOUD"}),
    ):
        pass
    with (
        pytest.raises(UsageError, match=f"{prefix}_LOG_FILE"),
        logged(environ={f"{prefix}_LOG_FILE": str(tmp_path)}),
    ):
        pass
    assert activity.log.level == logging.NOTSET


def test_a_log_that_cannot_be_written_ends_no_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("no folder")
    kept = JobLog("llama", tmp_path)
    kept.note("one")
    kept.note("two")
    assert sum("RAY_SENTINEL_LOG_DIR" in line for line in caplog.messages) == 1


def test_secrets_do_not_reach_the_log(tmp_path: Path) -> None:
    kept = JobLog("a/../b", tmp_path)
    kept.note("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789 python train.py\nsecond line")
    (file,) = tmp_path.glob("run/*/monitor-*.log")
    assert "hf_abcdefgh" not in file.read_text()
    assert len(file.read_text().splitlines()) == 1

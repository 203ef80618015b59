# ruff: noqa: E501 - log lines are as long as they are
"""Functions that watch and restart a training by its Ray job: what they take, tell and do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest

from ray_sentinel import monitor
from ray_sentinel.clock import FakeClock, moment
from ray_sentinel.errors import UsageError
from ray_sentinel.logs.checkpoints import scan_checkpoints
from ray_sentinel.model.ray_job import JobState
from ray_sentinel.monitor import activity, jobs
from ray_sentinel.monitor.activity import JobLog, logged
from ray_sentinel.monitor.jobs import JobLogTail, StallWatch, read_progress
from ray_sentinel.monitor.shell import Shell
from ray_sentinel.supervise import actions, events
from ray_sentinel.supervise.checkpoint_choice import choose
from ray_sentinel.supervise.policy import Failure, Policy, ResumePoint
from ray_sentinel.supervise.restart_state_machine import RestartStateMachine
from tests.support import kubectl
from tests.support.inventory.commands import answers, call, command
from tests.support.inventory.logs import log, note
from tests.support.inventory.row import Check, Row

DATED = "\n".join(
    f"2026-05-01 10:00:{second:02d} INFO step: {second} loss: 2.5 tokens/s: 100"
    for second in range(1, 11)
)
END = 1777629610.0
STATUS = "Resources\nUsage:\n {gpus}/8.0 GPU\n 3.0/96.0 CPU\nDemands:\n (no resource demands)"
EFA = "n:1:1 [0] NCCL INFO NET/OFI Selected provider is efa"
SOCKET = "n:1:1 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"
KINDS = ("RUNNING", "FAILED", "SUCCEEDED", "PENDING", "UNKNOWN")


@contextmanager
def pod(folder: Path, **programs: str) -> Iterator[None]:
    """A pod in which the ``programs`` print these texts; an empty one fails. ``script_NAME`` is
    the program's own text."""
    base = folder / f"pod-{len(list(folder.iterdir()))}"
    base.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        place = kubectl.install(base, patch)
        for name, text in {"stat": "", "tail": "", **programs}.items():
            own = name.startswith("script_")
            program = place / name.removeprefix("script_").replace("_", "-")
            body = text if own else f"cat <<'END'\n{text}\nEND" if text else "exit 1"
            program.write_text(f"#!/bin/sh\n{body}\n")
            program.chmod(0o755)
        yield


def state(printed: str, expected: str) -> Check:
    """What ``ray job status`` prints, as a state."""

    def run(folder: Path) -> None:
        with pod(folder, ray=printed):
            assert monitor.check_job_status("head", "raysubmit_abc") == expected
        with pod(folder, ray="Status for job 'raysubmit_other': RUNNING"):
            assert monitor.check_job_status("head", "raysubmit_abc") == "UNKNOWN"

    return Check("monitor.check_job_status", run)


def _status(name: str) -> str:
    return f"Status for job 'raysubmit_abc': {name}\n"


def _step(folder: Path) -> None:
    with pod(folder, tail=DATED, ray=""):
        assert monitor.get_current_step("head", "a") == 10
    with pod(folder, tail="nothing of steps", ray=""):
        assert monitor.get_current_step("head", "a") is None


def _throughput(folder: Path) -> None:
    assert read_progress(DATED)["tokens_per_second"] == 100
    assert read_progress("step: 3 loss: 2")["tokens_per_second"] is None


def _stall(folder: Path) -> None:
    watch = StallWatch(FakeClock())
    assert not watch.stalled(("h", "a"), JobLogTail(DATED), 300, now=END + 299)
    assert watch.stalled(("h", "a"), JobLogTail(DATED), 300, now=END + 301)


def _stall_other(folder: Path) -> None:
    watch = StallWatch(FakeClock())
    assert not watch.stalled(("h", "a"), JobLogTail(DATED), 600, now=END + 301)
    assert watch.stalled(("h", "a"), JobLogTail(DATED), 600, now=END + 601)


def _not_running(folder: Path) -> None:
    with pod(folder, ray=_status("FAILED"), tail=DATED):
        assert not monitor.detect_stall("head", "raysubmit_abc")
    with pod(folder, ray=_status("RUNNING"), tail=DATED):
        assert monitor.detect_stall("head", "raysubmit_abc")


class Play:
    """The course of one job: each of its attempts fails, in its own way, or ends well."""

    def __init__(self, *saved: int, **policy: float) -> None:
        self.clock = FakeClock()
        self.saved = saved
        self.starts: list[tuple[float, int | None]] = []
        self.result: actions.RunResult | None = None
        self.course = RestartStateMachine(
            Policy(**{"jitter": 0.0, **policy}), None, draw=lambda: 0.5
        )  # type: ignore[arg-type]
        self._do(self.course.begin())

    def feed(self, kind: type[events.SupervisorEvent], **fields: Any) -> None:
        """An event, now."""
        self._do(self.course.handle(kind(time=moment(self.clock), **fields)))

    def _do(self, asked: list[actions.SupervisorAction]) -> None:
        for action in asked:
            match action:
                case actions.Choose():
                    step = max(self.saved, default=None)
                    found = None if step is None else ResumePoint(path=f"/c/{step}", step=step)
                    self.feed(events.Offered, checkpoint=found)
                case actions.Launch():
                    start = action.checkpoint.step if action.checkpoint else None
                    self.starts.append((self.clock.monotonic(), start))
                    self.feed(events.AttemptStarted)
                case actions.Clear():
                    self.feed(events.Cleared)
                case actions.SecureEvidence():
                    self.feed(events.EvidenceSecured)
                case actions.EndAttempt():
                    self.fail("hang")
                case actions.Finish():
                    self.result = action.result

    def fail(self, kind: str = "node-fail") -> None:
        """The attempt fails, and what follows is waited for."""
        self.feed(events.Exited, failure=Failure(kind=kind, text="it broke", began=True))
        starts = len(self.starts)
        while self.result is None and len(self.starts) == starts:
            self.clock.advance(1.0)
            self.feed(events.TimePassed)


def _delays(folder: Path) -> None:
    play = Play(retry_delay=60)
    for _ in range(3):
        play.fail()
    times = [at for at, _ in play.starts]
    assert [after - before for before, after in pairwise(times)] == [60, 120, 240]


def _retries(folder: Path) -> None:
    play = Play(max_retries=2, retry_delay=1)
    play.fail()
    play.fail()
    assert play.result is None
    play.fail()
    assert play.result is not None
    assert (play.result.success, play.result.total_retries) == (False, 2)
    assert "2 restarts" in play.result.reason


def _from_latest(folder: Path) -> None:
    play = Play(100, 500, 1000, retry_delay=1)
    play.fail()
    assert [step for _, step in play.starts] == [1000, 1000]
    fresh = Play(retry_delay=1)
    assert [step for _, step in fresh.starts] == [None]


def _hung(folder: Path) -> None:
    play = Play(100, retry_delay=1)
    play.feed(events.HangSeen, why="no step for 300 s")
    assert len(play.starts) == 2
    well = Play(100)
    well.feed(events.Progressed, step=120)
    well.feed(events.Exited, failure=None)
    assert well.result is not None
    assert (well.result.success, well.result.final_step, len(well.starts)) == (True, 120, 1)


def saved(folder: Path, *steps: int) -> None:
    """Checkpoints as a training leaves them."""
    for step in steps:
        (folder / f"step_{step}").mkdir(parents=True)
        (folder / f"step_{step}/model.safetensors").write_bytes(b"\x02" + b"\0" * 7 + b"{}")


def _layout(folder: Path) -> None:
    place = folder / "run"
    saved(place, 100, 500, 1000)
    (place / "latest").symlink_to("step_1000")
    found = scan_checkpoints(place, now=0.0)
    assert sorted(one.step for one in found.checkpoints if one.step is not None) == [100, 500, 1000]
    assert found.latest_complete is not None
    assert found.latest_complete.step == 1000
    (place / "step_1000/model.safetensors").write_bytes(b"\xff" * 9)
    good = choose((place,), (), lambda path: scan_checkpoints(path, now=0.0)).checkpoint
    assert good is not None
    assert good.step == 500


def _no_checkpoints(folder: Path) -> None:
    missing = monitor.get_checkpoints(str(folder / "nowhere"))
    assert "nowhere" in missing["error"]
    assert not missing["healthy"]
    saved(folder / "run", 100)
    assert monitor.get_checkpoints(str(folder / "run"))["healthy"]


def smi(use: int, process: str = "") -> str:
    """What a pod's nvidia-smi prints of eight GPUs; ``process`` runs on the fourth."""
    gpus = "".join(
        f"<gpu><product_name>NVIDIA H100</product_name><uuid>GPU-{gpu}</uuid>"
        f"<utilization><gpu_util>{use} %</gpu_util></utilization>"
        "<fb_memory_usage><total>81559 MiB</total><used>40000 MiB</used></fb_memory_usage>"
        "<gpu_power_readings><instant_power_draw>500.0 W</instant_power_draw></gpu_power_readings>"
        "<temperature><gpu_temp>60 C</gpu_temp></temperature>"
        f"<processes>{process if gpu == 3 else ''}</processes></gpu>"
        for gpu in range(8)
    )
    return f"echo '<nvidia_smi_log>{gpus}</nvidia_smi_log>'"


PROCESS = (
    "<process_info><pid>77</pid><type>C</type><process_name>python3</process_name>"
    "<used_memory>39000 MiB</used_memory></process_info>"
)


def _gpu(folder: Path) -> None:
    with pod(folder, script_nvidia_smi=smi(90, PROCESS)):
        found = monitor.check_gpu_utilization("head")
    assert (found["gpu_count"], found["avg_utilization"], found["healthy"]) == (8, 90.0, True)
    assert found["gpu_utilizations"] == [90.0] * 8
    assert (found["memory_used"][0], found["memory_total"][0]) == (40000, 81559)
    assert found["processes"][0]["pid"] == 77
    with pod(folder, nvidia_smi=""):
        found = monitor.check_gpu_utilization("head")
    assert (found["gpu_count"], found["healthy"], bool(found["error"])) == (0, False, True)


def _ray(folder: Path) -> None:
    with pod(folder, ray=STATUS.format(gpus="8.0")):
        found = monitor.verify_ray_resources("head")
    assert (found["gpus_available"], found["gpus_used"]) == (8.0, 8.0)
    assert (found["cpus_available"], found["cpus_used"], found["healthy"]) == (96.0, 3.0, True)
    with pod(folder, ray=""):
        assert not monitor.verify_ray_resources("head")["healthy"]


def _idle(folder: Path) -> None:
    with pod(folder, script_nvidia_smi=smi(0), ray=STATUS.format(gpus="0.0"), grep=EFA, ls="efa0"):
        issues = " ".join(monitor.get_training_health("head")["issues"])
    assert "num_gpus" in issues
    assert "--entrypoint-num-gpus" in issues
    with pod(folder, script_nvidia_smi=smi(90), ray=STATUS.format(gpus="8.0"), grep=EFA, ls="efa0"):
        assert monitor.get_training_health("head")["issues"] == []


def efa(lines: str, transport: str, active: bool) -> Check:
    """What NCCL's lines in Ray's logs say of the transport, beside an EFA device."""

    def run(folder: Path) -> None:
        with pod(folder, grep=lines, ls="rdmap0s6"):
            found = monitor.check_efa_utilization("head")
        assert (found["transport"], found["efa_active"]) == (transport, active)

    return Check("monitor.check_efa_utilization", run)


def _efa_issue(folder: Path) -> None:
    def issues(lines: str) -> str:
        with pod(folder, grep=lines, ls="rdmap0s6", ray=STATUS.format(gpus="8.0"),
                 script_nvidia_smi=smi(90)):  # fmt: skip
            return " ".join(monitor.get_training_health("head")["issues"])

    assert "NCCL_NET=ofi" in issues(SOCKET)
    assert "LD_LIBRARY_PATH" in issues(SOCKET)
    assert "NCCL_NET=ofi" in issues("")
    assert issues(EFA) == ""


def _report(folder: Path) -> None:
    programs = {"ray": STATUS.format(gpus="8.0"), "grep": EFA, "ls": "efa0"}
    with pod(folder, script_nvidia_smi=smi(90), **programs):
        report = monitor.get_training_health("head", all_pods=["head", "worker"])
    assert set(report["gpus"]) == {"head", "worker"}
    assert report["gpu"]["gpu_count"] == 16
    assert report["healthy"] is True
    out = StringIO()
    monitor.print_training_health(report, file=out)
    for word in ("16, 90 %", "8/8 GPUs", "efa"):
        assert word in out.getvalue(), out.getvalue()


def _gone(folder: Path) -> None:
    with pod(folder):
        assert "not found" in monitor.verify_ray_resources("gone")["error"]
        assert monitor.check_job_status("gone", "raysubmit_abc") == "UNKNOWN"
    with pod(folder, ray=STATUS.format(gpus="8.0")):
        assert monitor.verify_ray_resources("head")["error"] == ""


def _namespace(folder: Path) -> None:
    words = ("ray", "status")
    assert Shell("head", "ml").command(words)[:5] == ["kubectl", "exec", "-n", "ml", "head"]
    assert "kubectl" not in Shell("", "ml").command(words)


def variable(name: str, *, file: bool) -> Check:
    """A variable that says what is logged, or where."""

    def run(folder: Path) -> None:
        path = folder / "here.log"
        environ = {name: str(path)} if file else {name: "WARNING"}
        other = name.replace("FILE", "LEVEL") if file else name.replace("LEVEL", "FILE")
        environ[other] = "WARNING" if file else str(path)
        with logged(environ=environ):
            activity.log.info("quiet")
            activity.log.warning("loud")
        assert [line.split(" ", 2)[2] for line in path.read_text().splitlines()] == ["WARNING loud"]
        wrong = {name: str(folder) if file else "LOUD"}
        with pytest.raises(UsageError, match=name), logged(environ=wrong):
            pass

    return Check(f"variable {name}", run)


def _dated(folder: Path) -> None:
    JobLog("my-job", folder).note("it goes")
    (file,) = folder.glob("run/my-job/monitor-*.log")
    when, level, text = file.read_text().split(" ", 2)
    assert (when[10], when[-1], level, text) == ("T", "Z", "INFO", "it goes\n")


def _followed(folder: Path) -> dict[str, Any]:
    """A job that runs at two looks and has then ended."""
    states = iter(["RUNNING", "RUNNING", "SUCCEEDED"])
    clock = FakeClock()
    with pod(folder, tail=DATED), pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "SystemClock", lambda: clock)
        patch.setattr(jobs, "check_job_status", lambda *asked: next(states))
        return dict(monitor.monitor_job("head", "a", check_interval=30))


def _watched(folder: Path) -> None:
    assert _followed(folder)["duration"] == 60.0
    clock = FakeClock()
    with pod(folder, tail=DATED), pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "SystemClock", lambda: clock)
        patch.setattr(jobs, "check_job_status", lambda *asked: "RUNNING")
        found = monitor.monitor_job("head", "a", check_interval=30, timeout=45)
    assert (found["duration"], found["timed_out"], found["status"]) == (45.0, True, "RUNNING")


def _result_has(name: str, folder: Path) -> None:
    expected = {"status": "SUCCEEDED", "duration": 60.0, "final_step": 10}
    assert _followed(folder)[name] == expected[name]


def _light(folder: Path) -> None:
    text = "import ray_sentinel.monitor, sys; print('ray' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["False", "False"], done.stderr


def states(name: str) -> Check:
    """A state that is told."""

    def run(folder: Path) -> None:
        assert name in get_args(JobState)
        assert name.lower() not in get_args(JobState)

    return Check("model.ray_job.JobState", run)


POD = ("training-head-x",)
RESTART = ("training-head-x", "my-training", "/checkpoints/my-training")
SUBMIT = ("training-head-x", "/checkpoints/step_1000", {"entrypoint": "python train.py"})

ROWS = [
    # What it does
    Row("state.running", "a job that runs", state(_status("RUNNING"), "RUNNING")),
    Row("state.failed", "a job that failed", state(_status("FAILED"), "FAILED")),
    Row("state.succeeded", "a job that came to its end", state(_status("SUCCEEDED"), "SUCCEEDED")),
    Row("state.pending", "a job that waits", state(_status("PENDING"), "PENDING")),
    Row(
        "state.unknown",
        "a job that nobody knows",
        state("Job raysubmit_abc not found\n", "UNKNOWN"),
    ),
    Row(
        "state.failed-sentence",
        "Ray's sentence at the end",
        state("Job 'raysubmit_abc' failed\n", "FAILED"),
    ),
    Row("progress.step", "the step is read from the log", Check("monitor.get_current_step", _step)),
    Row("progress.throughput", "and the throughput", Check("monitor.get_progress", _throughput)),
    Row(
        "stall.threshold",
        "five minutes without progress are a stall",
        Check("monitor.detect_stall", _stall),
    ),
    Row(
        "stall.own-threshold", "or as long as one says", Check("monitor.detect_stall", _stall_other)
    ),
    Row(
        "stall.running-only",
        "only a running job can stall",
        Check("monitor.detect_stall", _not_running),
    ),
    Row(
        "restart.from-latest",
        "a failed job is started again from its latest checkpoint",
        Check("run: course", _from_latest),
    ),
    Row(
        "restart.stalled",
        "and so is one that stalls; one that ended well is not",
        Check("run: course", _hung),
    ),
    Row("restart.limit", "only so many times", Check("run: course", _retries)),
    Row("restart.delay", "after delays that double", Check("run: course", _delays)),
    Row("log.dated", "all that it does is logged with its time", Check("monitor: log", _dated)),
    Row(
        "gpu.idle",
        "GPUs that nobody uses while a job runs",
        Check("monitor.get_training_health", _idle),
    ),
    # A job of ``ray job submit`` that has no GPUs
    Row(
        "submit.trap",
        "running, no GPU allotted, none busy: how to give it some",
        Check("monitor.get_training_health", _idle),
    ),
    Row(
        "submit.refused",
        "jobs of ray job submit are watched like all others",
        call(monitor.monitor_job, "head", "raysubmit_abc"),
        "a submitted job can have GPUs (--entrypoint-num-gpus, or actors' num_gpus): it is watched, and told",
    ),
    Row(
        "submit.in-pod",
        "a training started in the pod itself",
        command("run", "--job", "j", "--", "python3", "train.py", job="j"),
    ),
    Row(
        "submit.verify",
        "Ray's GPUs beside those that are used",
        Check("monitor.verify_ray_resources", _ray),
    ),
    # EFA
    Row("efa.selected", "NCCL's line about its provider", efa(EFA, "efa", True)),
    Row("efa.socket", "NCCL's line about sockets", efa(SOCKET, "socket", False)),
    Row("efa.silent", "no line: it may have fallen back", efa("", "unknown", False)),
    Row("efa.fix", "the variables that help", Check("monitor.get_training_health", _efa_issue)),
    Row("efa.line", "the line is known in logs, too", note("transport-efa", EFA, SOCKET)),
    Row(
        "efa.timeout",
        "what follows from the fall-back: a time-out of an all-gather",
        log(
            "nccl-timeout",
            "[rank3]:[E501 10:10:00 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=_ALLGATHER_BASE, NumelIn=1, NumelOut=8, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.",
        ),
    ),
    # The report
    Row("report.all", "one call for all pods", Check("monitor.get_training_health", _report)),
    *(
        Row(f"report.{field}", f"the report's {what}", answers(monitor.get_training_health, field))
        for field, what in (
            ("healthy", "verdict"),
            ("issues", "issues"),
            ("gpu", "GPUs together"),
            ("gpus", "GPUs by pod"),
            ("efa", "transport"),
            ("checkpoints", "checkpoints"),
            ("ray", "resources"),
        )
    ),
    Row(
        "report.latest",
        "the latest checkpoint's step",
        answers(monitor.get_checkpoints, "latest_step", int),
    ),
    Row(
        "report.call",
        "its arguments",
        call(monitor.get_training_health, head_pod="", checkpoint_dir="", all_pods=()),
    ),
    # auto_restart
    Row(
        "auto.positional",
        "head pod, job and checkpoint folder",
        call(monitor.auto_restart, *RESTART),
    ),
    *(
        Row(
            f"auto.{name}",
            f"{name}: {value}",
            call(monitor.auto_restart, *RESTART, **{name: value}),
        )
        for name, value in (
            ("max_retries", 10),
            ("retry_delay", 60),
            ("stagnation_threshold", 300),
            ("check_interval", 30),
        )
    ),
    *(
        Row(
            f"auto.result-{name}", f"the result's {name}", answers(monitor.auto_restart, name, kind)
        )
        for name, kind in (
            ("success", bool),
            ("final_step", int),
            ("total_retries", int),
            ("reason", str),
        )
    ),
    # monitor_job
    Row(
        "job.positional",
        "head pod and id",
        call(monitor.monitor_job, "training-head-x", "raysubmit_abc123"),
    ),
    Row(
        "job.interval",
        "seconds between two looks, and how long",
        Check("monitor.monitor_job", _watched),
    ),
    *(
        Row(
            f"job.result-{name}",
            f"the result's {name}",
            Check("monitor.monitor_job", partial(_result_has, name)),
        )
        for name in ("status", "duration", "final_step")
    ),
    # The others
    Row(
        "status.call",
        "head pod and id",
        call(monitor.check_job_status, "training-head-x", "raysubmit_abc"),
    ),
    *(Row(f"status.{name.lower()}", f"the state {name}", states(name)) for name in KINDS),
    Row(
        "step.call",
        "head pod and id",
        call(monitor.get_current_step, "training-head-x", "raysubmit_abc"),
    ),
    Row(
        "stall.call",
        "head pod, id and 300 s",
        call(monitor.detect_stall, "h", "a", stagnation_threshold=300),
    ),
    Row(
        "resume.call",
        "head pod, checkpoint and configuration",
        call(monitor.submit_job_with_resume, *SUBMIT),
    ),
    Row(
        "gpu.call",
        "head pod, and a namespace",
        call(monitor.check_gpu_utilization, namespace="default"),
    ),
    Row(
        "gpu.values",
        "what nvidia-smi says in the pod",
        Check("monitor.check_gpu_utilization", _gpu),
    ),
    *(
        Row(
            f"gpu.result-{name}",
            f"the result's {name}",
            answers(monitor.check_gpu_utilization, name),
        )
        for name in (
            "gpu_count",
            "gpu_utilizations",
            "memory_used",
            "memory_total",
            "processes",
            "avg_utilization",
            "healthy",
        )
    ),
    Row(
        "ray.call",
        "head pod, and a namespace",
        call(monitor.verify_ray_resources, namespace="default"),
    ),
    *(
        Row(
            f"ray.result-{name}",
            f"the result's {name}",
            answers(monitor.verify_ray_resources, name),
        )
        for name in ("gpus_available", "gpus_used", "cpus_available", "cpus_used", "healthy")
    ),
    Row("efa.call", "head pod", call(monitor.check_efa_utilization, "head")),
    *(
        Row(
            f"efa.result-{name}",
            f"the result's {name}",
            answers(monitor.check_efa_utilization, name),
        )
        for name in ("efa_active", "transport")
    ),
    # Settings
    Row("variable.level", "how much is logged", variable("TRAINING_MONITOR_LOG_LEVEL", file=False)),
    Row("variable.file", "and into which file", variable("TRAINING_MONITOR_LOG_FILE", file=True)),
    Row(
        "layout",
        "step_N folders and a link to the latest; one that is cut off is passed over",
        Check("checkpoints", _layout),
    ),
    # Troubles
    Row(
        "trouble.job",
        "there is no such job",
        log("config", "Job raysubmit_abc does not exist", says=("ray job list",)),
    ),
    Row("trouble.pod", "there is no such pod", Check("monitor", _gone)),
    Row(
        "trouble.checkpoints",
        "there are no checkpoints",
        Check("monitor.get_checkpoints", _no_checkpoints),
    ),
    Row(
        "trouble.rights",
        "the namespace that one has a right to",
        Check("monitor: kubectl", _namespace),
    ),
    # Needs
    Row(
        "needs.nothing",
        "nothing is installed in the pod, and no package is needed here",
        Check("monitor: imports", _light),
    ),
]

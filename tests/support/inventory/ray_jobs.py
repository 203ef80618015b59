# ruff: noqa: E501 - log lines are as long as they are
"""Where a Ray job's logs are, which phase of its start it is in, and how it usually fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ray_sentinel import monitor
from ray_sentinel.doctor.check import Cluster, Joined
from ray_sentinel.doctor.checks.interfaces import InterfacesCheck
from ray_sentinel.doctor.checks.interfaces import InterfacesFacts as Have
from ray_sentinel.doctor.checks.nodes import NodesCheck
from ray_sentinel.doctor.checks.nodes import NodesFacts as Answered
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.evidence.logs.lines.lines import parse_line
from ray_sentinel.evidence.node.ray_status import read_status
from ray_sentinel.inspection.session_logs import last_errors
from ray_sentinel.logs.find import find_logs, live_session
from ray_sentinel.logs.select import LineFilter, choose, describe
from tests.support.inventory.commands import answers, command
from tests.support.inventory.doctors import doctor, judged
from tests.support.inventory.elastic_training import ETH, LO, OOM
from tests.support.inventory.logs import (
    catalogue,
    file_kind,
    harmless,
    log,
    phase,
    remedy,
    stalled,
    steps,
    triaged,
)
from tests.support.inventory.metrics import served
from tests.support.inventory.row import Check, Row

WORKER = f"worker-{'ab' * 28}-01000000-514428"
SHARDS = "Multi-thread loading shards: {}% Completed | 3/30 [00:10<01:30]"
TIMEOUT = "[rank3]:[E501 10:10:00 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds before timing out."
ACTOR = "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task. pid: 514428 ip: 10.0.0.2"
AGENT = "core_worker.cc:800: Failed to establish connection to the metrics exporter agent. Metrics will not be exported."
STATUS = """\
======== Autoscaler status: 2026-01-01 10:00:00 ========
Node status
Active:
 1 node_a
Resources
Usage:
 2.0/8.0 GPU
Demands:
 {'GPU': 8.0}: 1+ pending tasks/actors
"""


def _session(folder: Path) -> Path:
    logs = folder / "ray_torchspec_7" / "session_latest" / "logs"
    logs.mkdir(parents=True)
    for number, actor in enumerate(("TrainerActor", "SglEngine", "MooncakeMaster")):
        name = f"worker-{'ab' * 28}-01000000-{100 + number}.err"
        (logs / name).write_text(
            f":job_id:01000000\n:actor_name:{actor}\n2025-01-02 10:00:0{number} INFO up\n"
        )
        os.utime(logs / name, (1e9 + number, 1e9 + number))
    return logs


def _own_folder(folder: Path) -> None:
    logs = _session(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TEMP_DIR", str(folder / "ray_torchspec_7"))
        assert live_session() == logs.parent
        patch.setenv("RAY_TEMP_DIR", str(folder / "elsewhere"))
        patch.setenv("RAY_TMPDIR", str(folder / "nowhere"))
        patch.setattr("ray_sentinel.logs.find.LIVE_SESSION", folder / "ray_torchspec_7")
        assert live_session() == folder / "ray_torchspec_7"


def _actors(folder: Path) -> None:
    described = describe(find_logs(_session(folder)))
    assert len(described) == 3
    for actor in ("TrainerActor", "SglEngine", "MooncakeMaster"):
        (one,) = choose(described, LineFilter(actor=actor))
        assert one.file.origin.actor == actor
    assert choose(described, LineFilter(actor="Router")) == ()


def _errors(folder: Path) -> None:
    logs = _session(folder)
    assert not last_errors(logs, catalogue())
    (file, *_) = sorted(logs.glob("*.err"))
    for word in (
        "RuntimeError: bad",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "Killed",
        'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: boom',
    ):
        file.write_text(f"2025-01-02 10:00:00 INFO up\n{word}\n")
        assert last_errors(logs, catalogue()), word


def _status(folder: Path) -> None:
    found = read_status(STATUS)
    assert found is not None
    assert (found.gpus_allotted, found.gpus_total, found.nodes) == (2.0, 8.0, 1)
    assert len(found.demands) == 1
    assert read_status("connection refused") is None


def _repeated(folder: Path) -> None:
    assert (
        parse_line("(SglEngine pid=1, ip=10.0.0.2) up [repeated 7x across cluster]").repeated == 7
    )
    assert parse_line("(SglEngine pid=1, ip=10.0.0.2) up").repeated == 1


def _whose(folder: Path) -> None:
    origin = parse_line("(SglEngine pid=514428, ip=10.0.0.2) ready").origin
    assert (origin.actor, origin.pid, origin.ip) == ("SglEngine", 514428, "10.0.0.2")
    assert parse_line("ready").origin.pid is None


def _by_pid(folder: Path) -> None:
    described = describe(find_logs(_session(folder)))
    assert [one.file.origin.pid for one in choose(described, LineFilter(pid=101))] == [101]
    assert choose(described, LineFilter(pid=9)) == ()


def _nan(folder: Path) -> None:
    good = "".join(
        f"2025-05-01 10:00:{n:02d} step {n} loss {3 - n / 50:.2f} time 1.0s\n" for n in range(30)
    )
    bad = "".join(f"2025-05-01 10:00:{n:02d} step {n} loss nan time 1.0s\n" for n in range(30, 59))
    assert triaged(folder / "good", good).kind != "nan-loss"
    found = triaged(folder / "bad", good + bad)
    assert found.kind == "nan-loss"
    told = " ".join(found.next_steps).lower()
    for word in ("gradient norm", "max_grad_norm", "batches"):
        assert word in told, (word, told)


def _joined(folder: Path) -> None:
    def told(*hosts: str) -> list[tuple[str, str]]:
        joined = tuple(
            Joined(id=host * 8, host=host, address=f"10.0.0.{n}", is_head=n == 1)
            for n, host in enumerate(hosts, 1)
        )
        cluster = Cluster(address="10.0.0.1:6379", joined=joined)
        seen = {host: Answered(host) for host in hosts}
        return [
            (one.outcome, one.seen) for one in judged(NodesCheck(), seen, RunPlan(nodes=2), cluster)
        ]

    assert [outcome for outcome, _ in told("a", "b")] == ["ok"]
    ((outcome, seen),) = told("a")
    assert outcome == "failure"
    assert "2" in seen


def _far(folder: Path) -> None:
    folder = folder / "ray_logs"
    for node in ("node001", "node002"):
        (folder / node).mkdir(parents=True)
        (folder / node / f"{WORKER}.err").write_text("2025-01-02 10:00:00 INFO up\n")
    described = describe(find_logs(folder.parent))
    assert [one.file.origin.host for one in choose(described, LineFilter(node="node002"))] == [
        "node002"
    ]
    assert choose(described, LineFilter(node="node009")) == ()


def _says(folder: Path, word: str) -> None:
    assert word in " ".join(triaged(folder / "silent", "").next_steps)
    assert word not in " ".join(
        triaged(folder / "clear", AGENT.replace("metrics", "x") + "\n" + OOM).next_steps
    )


ROWS = [
    # Where logs are
    Row(
        "logs.driver",
        "the launcher's output, teed to a file named by recipe and time",
        file_kind("running_logs/kimi25_3node_train_20260220_020357.log", "log"),
    ),
    Row("logs.driver-read", "it is triaged", command("triage", "running_logs")),
    Row("logs.worker-out", "each actor's standard output", file_kind(f"{WORKER}.out", "worker")),
    Row(
        "logs.worker-err",
        "each actor's standard error, where logging goes",
        file_kind(f"{WORKER}.err", "worker"),
    ),
    Row(
        "logs.temp-dir",
        "recipes have temporary folders of their own",
        Check("logs: RAY_TEMP_DIR", _own_folder),
    ),
    Row(
        "logs.recent",
        "which workers were active last, and the ends of all",
        command("logs", "--follow", "--kind", "worker", kind="worker"),
    ),
    Row("logs.actor", "the file of a kind of actor", Check("logs --actor", _actors)),
    Row("logs.raylet", "the raylet's log", file_kind("raylet.out", "raylet")),
    Row("logs.gcs", "the control store's log", file_kind("gcs_server.out", "gcs")),
    Row("logs.monitor", "the autoscaler's log", file_kind("monitor.log", "monitor")),
    Row(
        "logs.verbosity",
        "the framework can tell more",
        Check("triage: next steps", lambda folder: _says(folder, "TORCHSPEC_LOG_LEVEL")),
    ),
    Row(
        "logs.nccl",
        "NCCL can tell more",
        Check("triage: next steps", lambda folder: _says(folder, "NCCL_DEBUG=INFO")),
    ),
    # Phases of the start
    Row(
        "phase.config",
        "1: configuration and data set",
        phase("dataset", "Added 500 samples to controller", usual=60),
    ),
    Row(
        "phase.placement",
        "2: GPUs are reserved",
        phase("placement", "bundle 3, actual_bundle_index: 1, node: 10.0.0.2, gpu: 0", usual=30),
    ),
    Row(
        "phase.services",
        "3: a side service starts",
        phase(
            "side-service", "Auto-resolved mooncake master_server_address: 10.0.0.1:50051", usual=30
        ),
    ),
    Row(
        "phase.process-group",
        "4: process group and model",
        phase(
            "process-group",
            "Device mesh (1D): DeviceMesh('cuda', [0, 1])",
            "Draft model: 1234 trainable",
            usual=60,
        ),
    ),
    Row(
        "phase.model-load",
        "5: shards of the model are loaded, for 5 to 15 minutes",
        phase("model-load", SHARDS.format(10), usual=900),
    ),
    Row(
        "phase.quiet",
        "5: after the last shard cache and graphs, without a word",
        phase("kv-cache", SHARDS.format(100), usual=600),
    ),
    Row(
        "phase.graphs",
        "5: CUDA graphs are captured",
        phase(
            "graph-capture",
            "Capture cuda graph begin. This can take up to several minutes.",
            usual=300,
        ),
    ),
    Row(
        "phase.queues",
        "6: queues are wired",
        phase("queue-wiring", "set_train_queue done", usual=30),
    ),
    Row(
        "phase.train",
        "7: the training loop",
        phase("train", "Training: 10%|#  | 100/1000 [01:00<09:00, 1.60it/s]"),
    ),
    Row(
        "phase.train-step",
        "7: its bar tells the step",
        steps(
            "Training: 10%|#  | 100/1000 [01:00<09:00, 1.60it/s]\nTraining: 11%|#  | 110/1000 [01:06<08:54, 1.60it/s]",
            110,
        ),
    ),
    # First looks
    Row(
        "look.status",
        "is the cluster there, and what does it have",
        Check("monitor.verify_ray_resources", _status),
    ),
    Row(
        "look.address",
        "another cluster's address",
        command("status", "--address", "127.0.0.1:6380", address="127.0.0.1:6380"),
    ),
    Row(
        "look.raylet",
        "the raylet's log grows while the cluster lives",
        served("train_raylet_log_timestamp_seconds", "gauge", "host"),
    ),
    Row("look.growing", "the workers' logs grow", command("triage", "--live", live=True)),
    Row(
        "look.tail", "the last lines of the newest worker", command("logs", "--tail", "30", tail=30)
    ),
    Row("look.phase", "which phase it is in", command("status", "--watch", watch=True)),
    Row(
        "look.gpus",
        "are the GPUs at work",
        answers(monitor.check_gpu_utilization, "gpu_utilizations"),
    ),
    Row("look.memory", "and their memory", answers(monitor.check_gpu_utilization, "memory_used")),
    Row(
        "look.errors",
        "errors, kills and tracebacks in the workers' logs",
        Check("health: logs", _errors),
    ),
    # How it fails
    Row(
        "fail.placement",
        "it stands after the placement: workers have not joined",
        stalled(
            "placement",
            "bundle 3, actual_bundle_index: 1, node: 10.0.0.2",
            3600,
            "ray status",
            "ray start",
        ),
    ),
    Row(
        "fail.joined",
        "nodes that did not join are named before the run",
        Check("doctor: nodes", _joined),
    ),
    Row(
        "fail.shards",
        "loading stands below 100 %: slow storage, or the host's memory",
        stalled("model-load", SHARDS.format(40), 7200, "storage", "memory", "dmesg", "iostat"),
    ),
    Row(
        "fail.graphs",
        "ten silent minutes after 100 %: graphs or the cache",
        stalled("kv-cache", SHARDS.format(100), 3600, "ten minutes", "nvidia-smi", "worker-*.err"),
    ),
    Row("fail.timeout", "a collective times out", log("nccl-timeout", TIMEOUT)),
    Row(
        "fail.process-group",
        "the process group is never there",
        stalled(
            "process-group",
            "Device mesh (1D): DeviceMesh('cuda', [0, 1])",
            7200,
            "NCCL_SOCKET_IFNAME",
            "GLOO_SOCKET_IFNAME",
            "TP_SOCKET_IFNAME",
        ),
    ),
    Row(
        "fail.interfaces",
        "the three variables must be alike on all nodes",
        doctor(
            InterfacesCheck(),
            {"a": Have((LO, ETH), {"TP_SOCKET_IFNAME": "eth0"}), "b": Have((LO, ETH), {})},
            {
                "a": Have((LO, ETH), {"TP_SOCKET_IFNAME": "eth0"}),
                "b": Have((LO, ETH), {"TP_SOCKET_IFNAME": "eth0"}),
            },
            "TP_SOCKET_IFNAME",
            "not set on b",
        ),
    ),
    Row("fail.metrics-agent", "a warning of Ray's metrics that is harmless", harmless(AGENT)),
    Row("fail.actor", "an actor died on another node", log("actor-fail", ACTOR)),
    Row(
        "fail.actor-file",
        "its file is found by the pid that the message gives",
        Check("logs --pid", _by_pid),
    ),
    Row("fail.actor-told", "and that is what is told", remedy(ACTOR, "--pid", "--ip")),
    Row("fail.nan", "the loss is no number: gradients or data", Check("triage: nan-loss", _nan)),
    # Several nodes
    Row("nodes.logs", "the workers' logs lie on their own nodes", Check("logs --node", _far)),
    Row(
        "nodes.repeated",
        "Ray folds lines that many workers print",
        Check("triage: prefixes", _repeated),
    ),
    Row("nodes.whose", "a line's prefix tells whose it is", Check("triage: prefixes", _whose)),
]

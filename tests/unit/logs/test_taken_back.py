# ruff: noqa: E501 - log lines are as long as they are
"""A machine that a cloud or a scheduler took back, of which only events tell; and whose failures
are nobody's, or a machine's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage


def triage(tmp_path: Path, files: dict[str, str]) -> Triage:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return triage_path(tmp_path, load_catalogue(), now=0.0)


def steps(count: int, every: int = 4) -> str:
    """Steps from 10:30:00 on."""
    lines = []
    for number in range(count):
        at = 1800 + number * every
        clock = f"10:{at // 60:02d}:{at % 60:02d}"
        lines.append(
            f"2026-11-27 {clock},000 INFO train.py:12 -- step {number + 1}/5000 loss 1.2\n"
        )
    return "".join(lines)


PEERS = "".join(
    f"[rank{r}]:[E1127 10:39:20.123456 ProcessGroupNCCL.cpp:1895] [PG ID 0 Rank {r}] Process group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error, NCCL version 2.27.3\n"
    for r in range(8)
)
AUDIT = {
    "protoPayload": {
        "methodName": "compute.instances.preempted",
        "resourceName": "projects/p/zones/us-central1-a/instances/a3-worker-07",
    },
    "severity": "INFO",
    "timestamp": "2026-11-27T10:38:55Z",
}
BRIDGE = {
    "detail-type": "EC2 Spot Instance Interruption Warning",
    "time": "2026-11-27T10:37:12Z",
    "detail": {"instance-id": "i-0c1ffee8a7d21b3f0", "instance-action": "terminate"},
}


@pytest.mark.parametrize(
    ("event", "node"),
    [
        ("118s  Warning  SpotInterruption  node/ip-10-0-3-7.ec2.internal  Spot ITN received. Instance will be interrupted at 2026-11-27T10:39:10Z", "ip-10-0-3-7.ec2.internal"),
        ("2026-11-27T10:37:10Z  Warning  SpotInterrupted  node/ip-10-0-3-7.ec2.internal  Spot interruption warning was triggered", "ip-10-0-3-7.ec2.internal"),
        ('{"level":"INFO","time":"2026-11-27T10:37:10.754Z","message":"initiating delete from interruption message","messageKind":"spot_interrupted","Node":{"name":"ip-10-0-3-7.ec2.internal"}}', "ip-10-0-3-7.ec2.internal"),
        ("2m  Warning  PreemptScheduled  node/aks-gpuspot-31442-vmss000003  VM Event Scheduled: Preempt. It will be at Fri, 27 Nov 2026 10:38:50 GMT", "aks-gpuspot-31442-vmss000003"),
        ("4m  Normal  Preempted  pod/train-worker-3  Preempted by pod 9f2c-11aa on node gpu-node-12", "gpu-node-12"),
        ("systemevent-17643  compute.instances.preempted  us-central1-a/instances/a3-worker-07  200  DONE  2026-11-27T10:38:55.000-00:00", "a3-worker-07"),
        (json.dumps(AUDIT), "a3-worker-07"),
        (json.dumps(BRIDGE), "i-0c1ffee8a7d21b3f0"),
        ('{"EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["vmss-gpu_3"],"NotBefore":"Fri, 27 Nov 2026 10:38:52 GMT"}', "vmss-gpu_3"),
        ('{"status":"FAILED","statusReason":"Host EC2 (instance i-0c1ffee8a7d21b3f0) terminated."}', "i-0c1ffee8a7d21b3f0"),
        ("Node:  gke-a3-pool-1-7f3c-x2lp/10.0.3.7\nStatus:  Failed\nMessage:  Pod was terminated in response to imminent node shutdown.", "gke-a3-pool-1-7f3c-x2lp"),
    ],
    ids=["aws handler", "karpenter", "karpenter's log", "azure", "priority", "operation", "audit", "eventbridge", "azure's service", "batch", "kubelet"],
)  # fmt: skip
def test_the_machine_that_an_event_is_about_is_named(event: str, node: str, tmp_path: Path) -> None:
    answer = triage(tmp_path, {"driver.log": steps(137) + PEERS, "events.txt": event + "\n"})
    assert (answer.kind, [who.node for who in answer.culprits]) == ("preempted", [node])


def test_a_drained_raylet_is_its_node(tmp_path: Path) -> None:
    line = "[2026-11-27 10:38:50,112 I 91 91] (raylet) node_manager.cc:2051: Drain raylet RPC has received. Deadline is 1764240000. Drain reason: DRAIN_NODE_REASON_PREEMPTION. Drain reason message: spot notice\n"
    answer = triage(tmp_path, {"driver.log": steps(137) + PEERS, "10.0.3.7/raylet.out": line})
    assert (answer.kind, [who.node for who in answer.culprits]) == ("preempted", ["10.0.3.7"])


def test_a_node_that_rays_autoscaler_lost_is_named(tmp_path: Path) -> None:
    line = "2026-11-27 10:39:02,110\tINFO autoscaler.py:1471 -- StandardAutoscaler: Terminating the node with id i-0c1f and ip 10.0.3.7. ({0})\n"
    job = {"driver.log": steps(137) + PEERS}
    lost = triage(tmp_path, {**job, "monitor.log": line.format("lost contact with raylet")})
    assert (lost.kind, [who.ip for who in lost.culprits]) == ("node-fail", ["10.0.3.7"])
    idle = triage(tmp_path, {**job, "monitor.log": line.format("idle")})
    assert (idle.kind, idle.culprits) == ("nccl-timeout", ())


NOTICE = "2026-11-27T10:31:10Z  Warning  SpotInterrupted  node/ip-10-0-9-9.ec2.internal  Spot interruption warning was triggered\n"


def test_a_notice_without_consequences_is_none(tmp_path: Path) -> None:
    answer = triage(tmp_path, {"driver.log": steps(137), "events.txt": NOTICE})
    assert answer.kind == "unknown-death"


def test_a_notice_long_before_the_failure_does_not_explain_it(tmp_path: Path) -> None:
    oom = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB\n"
    answer = triage(tmp_path, {"driver.log": steps(437) + oom, "events.txt": NOTICE})
    assert (answer.kind, [who.rank for who in answer.culprits]) == ("oom-gpu", [3])


def unused(ranks: range) -> str:
    return "".join(
        f"[rank{r}]: RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. Parameter indices {r}\n"
        for r in ranks
    )


def test_what_all_ranks_raise_is_no_ranks_fault(tmp_path: Path) -> None:
    answer = triage(tmp_path, {"job.log": steps(3) + unused(range(4))})
    assert (answer.kind, answer.culprits) == ("python-exception", ())


def test_what_one_of_several_ranks_raises_is_its_own(tmp_path: Path) -> None:
    others = "".join(f"[rank{r}]: ValueError: bad batch\n" for r in (0, 1))
    answer = triage(tmp_path, {"job.log": steps(3) + unused(range(2, 3)) + others})
    assert [who.rank for who in answer.culprits] == [2]


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("dmesg-10.29.214.5.txt", "10.29.214.5"),
        ("dmesg_gpu-17.log", "gpu-17"),
        ("gpu-17-dmesg.log", "gpu-17"),
        ("gpu-17/dmesg.txt", "gpu-17"),
    ],
)
def test_a_kernel_log_is_its_machines(name: str, node: str, tmp_path: Path) -> None:
    kill = "[Fri Nov 27 10:31:02 2026] Memory cgroup out of memory: Killed process 190211 (ray::WorkerDict) total-vm:91882212kB, anon-rss:61234120kB, file-rss:0kB, shmem-rss:120kB, UID:0 pgtables:140000kB oom_score_adj:1000\n"
    answer = triage(tmp_path, {"driver.log": steps(15), name: kill})
    assert (answer.kind, [who.node for who in answer.culprits]) == ("oom-host", [node])


def test_sruns_table_tells_the_node_of_a_rank(tmp_path: Path) -> None:
    text = """3: Traceback (most recent call last):
3:   File "/scratch/u/data.py", line 33, in __getitem__
3: OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/d/0001.npy'
srun: error: nid001242: task 3: Exited with exit code 1
"""
    answer = triage(tmp_path, {"job.log": steps(15) + text})
    (who,) = answer.culprits
    assert (who.rank, who.node) == (3, "nid001242")


def test_a_block_of_zero_bytes_makes_no_binary_file(tmp_path: Path) -> None:
    oom = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 2 has a total capacity\n"
    answer = triage(tmp_path, {"job.log": steps(15) + "\0" * 4096 + oom})
    assert (answer.kind, [who.rank for who in answer.culprits]) == ("oom-gpu", [2])


def test_the_rank_that_an_actor_shows_is_named(tmp_path: Path) -> None:
    text = """Traceback (most recent call last):
  File "/opt/nemo-rl/examples/run_grpo_math.py", line 216, in <module>
    main()
ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, ray::lm_policy-0-2:DTensorPolicyWorker.__init__() (pid=2791977, ip=10.65.6.13, actor_id=79f3, repr=DTensorPolicyWorker[rank=2])
  File "/opt/nemo-rl/nemo_rl/models/policy/dtensor_policy_worker.py", line 201, in __init__
    self.model = AutoModelForCausalLM.from_config(cfg)
RuntimeError: The size of tensor a (64) must match the size of tensor b (128)
"""
    (who,) = triage(tmp_path, {"job.log": text}).culprits
    assert (who.rank, who.pid, who.node) == (2, 2791977, "10.65.6.13")


@pytest.mark.parametrize("probe", ["Readiness", "Liveness", "Startup"])
def test_a_probe_of_the_kubelet_that_is_not_answered_is_no_failure_of_the_job(
    tmp_path: Path, probe: str
) -> None:
    events = (
        "LAST SEEN  TYPE     REASON     OBJECT         MESSAGE\n"
        f'5m  Warning  Unhealthy  pod/trainer-0  {probe} probe failed: Get "http://10.0.0.3:8080/ready": dial tcp 10.0.0.3:8080: connect: connection refused\n'
        "4m  Normal   Started    pod/trainer-0  Started container trainer\n"
    )
    answer = triage(tmp_path, {"trainer-0.log": steps(120), "events.txt": events})
    assert answer.kind == "unknown-death"  # the logs go on to their end
    assert answer.culprits == ()


def test_a_container_restarted_for_its_probe_has_failed(tmp_path: Path) -> None:
    events = "5m  Normal  Killing  pod/trainer-0  Container trainer failed liveness probe, will be restarted\n"
    answer = triage(tmp_path, {"trainer-0.log": steps(120), "events.txt": events})
    assert answer.kind != "unknown-death"

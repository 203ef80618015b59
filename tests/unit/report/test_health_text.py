"""Health and a node's view in words: the verdict first, and nothing left out that is wrong."""

from __future__ import annotations

from ray_sentinel.model.health import (
    BlockedTask,
    CheckpointHealth,
    DeviceTraffic,
    GpuHealth,
    GpuProcess,
    GpuState,
    Health,
    KernelLine,
    NodeView,
    RayResources,
    TransportHealth,
)
from ray_sentinel.model.triage import LogLine
from ray_sentinel.report.health_text import health_lines, node_lines


def test_health_in_words() -> None:
    told = Health(
        healthy=False,
        verdict="j is RUNNING while nothing works",
        issues=("j is RUNNING while nothing works",),
        gpu=GpuHealth(count=8, busy=0, processes=3, avg_utilization=1.0, power_watts=700.0),
        ray=RayResources(gpus_total=8, gpus_allotted=4, cpus_total=16, demands=("x",)),
        transport=TransportHealth(used="socket", by="log", devices=("n/efa0:1 (efa)",)),
        checkpoints=CheckpointHealth(
            folder="/c", latest_step=300, count=3, age_seconds=12.0, problems=("step_4 is torn",)
        ),
        progress={"j": {"state": "hung", "step": 7, "step_age": 30.0, "step_seconds": 1.5}},
        collectors={"failing": {"n/nvml": "hangs"}},
        logs=(LogLine(file="w.err", line=None, text="ValueError: boom"),),
        notes=("m could not be looked at",),
    )
    text = "\n".join(health_lines(told))
    assert text.startswith("NOT HEALTHY: j is RUNNING")
    for part in (
        "0 of 8 busy",
        "4 of 8 GPUs",
        "1 requests wait",
        "socket (by NCCL's own lines)",
        "n/efa0:1 (efa)",
        "latest step 300",
        "step_4 is torn",
        "j: hung, step 7, 30 s ago",
        "1 failing",
        "ValueError: boom",
        "note: m could not",
    ):
        assert part in text


def test_what_nobody_looked_at_is_said_to_be_unknown() -> None:
    text = "\n".join(health_lines(Health(healthy=True, verdict="nothing is wrong")))
    assert text.startswith("healthy: nothing is wrong")
    assert "GPUs: none was seen" in text
    assert "transport: unknown" in text
    assert "checkpoints" not in text


def test_a_node_in_words() -> None:
    view = NodeView(
        host="n1",
        versions={"kernel": "6.1"},
        blocked=(BlockedTask(pid=7, tid=9, name="python", wchan="nfs_wait", stack=("nfs_x",)),),
        kernel=(
            KernelLine(text="NVRM: Xid 79", kind="gpu-lost", time=1_800_000_000.0),
            KernelLine(text="without a time"),
        ),
        gpus=(GpuState(index="0", name="H100", utilization_percent=97.0),),
        gpu_processes=(GpuProcess(gpu="0", pid=7, name="python", memory_bytes=2 << 30),),
        devices=(
            DeviceTraffic(device="efa0", port="1", kind="efa", active=True),
            DeviceTraffic(
                device="efa1", port="1", kind="efa", active=True, bytes_per_second=12.5e9
            ),
        ),
        problems=("the kernel log: run as root",),
    )
    text = "\n".join(node_lines(view))
    for part in (
        "kernel: 6.1",
        "pid 7 tid 9 python waits in nfs_wait",
        "nfs_x",
        "2027-01-15 08:00:00.0 UTC [gpu-lost] NVRM: Xid 79",
        "  without a time",
        "0 H100: 97 %, ? GiB used, ? W",
        "GPU 0: pid 7 python, 2.0 GiB used",
        "efa0:1 efa, active, not counted",
        "efa1:1 efa, active, 12,500.0 MB/s",
        "note: the kernel log",
    ):
        assert part in text

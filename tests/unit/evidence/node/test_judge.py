"""What counts as an issue: the cluster's word, the trap of idle GPUs, transport, checkpoints."""

from __future__ import annotations

from ray_sentinel.evidence.checkpoints import FolderEntry, read_listing
from ray_sentinel.evidence.node.judge import Seen, checkpoint_health, judge
from ray_sentinel.model.health import (
    BlockedTask,
    DeviceTraffic,
    GpuState,
    KernelLine,
    NodeView,
    RayResources,
    TransportLines,
)
from ray_sentinel.model.metrics import CollectorStatus
from ray_sentinel.model.status import JobStatus, NodeStatus, Status, Unwatched

HOUR = 3600.0


def status(**more: object) -> Status:
    job = JobStatus(job="j", attempt=0, step=5, phase="train", step_age_seconds=1.0)
    return Status(**{"state": "healthy", "verdict": "all is well", "jobs": (job,), **more})  # type: ignore[arg-type]


def gpus(percent: float, count: int = 4) -> NodeView:
    return NodeView(
        host="n",
        gpus=tuple(GpuState(index=str(i), utilization_percent=percent) for i in range(count)),
    )


def test_well_is_well() -> None:
    told = judge(
        Seen(
            status=status(),
            nodes=(gpus(97.0),),
            resources=RayResources(gpus_total=4, gpus_allotted=4),
        )
    )
    assert told.healthy
    assert told.issues == ()
    assert told.gpu is not None
    assert told.gpu.busy == 4
    assert told.progress is not None
    assert told.progress["j"]["step"] == 5


def test_the_clusters_word_counts() -> None:
    failing = CollectorStatus(name="nvml", state="quarantined", message="hangs")
    told = judge(
        Seen(
            status=Status(
                state="hung",
                verdict="rank 3 is stopped",
                nodes=(NodeStatus(id="n", host="h", address="a", collectors=(failing,)),),
                unwatched=(Unwatched(id="m", host="i", reason="no msgspec"),),
            )
        )
    )
    assert not told.healthy
    assert told.issues == (
        "rank 3 is stopped",
        "i is not watched: no msgspec",
        "collector h/nvml: hangs",
    )
    assert told.collectors == {"failing": {"h/nvml": "hangs"}}


def test_running_without_a_gpu_allotted_is_the_trap() -> None:
    resources = RayResources(gpus_total=8, gpus_allotted=0)
    told = judge(Seen(running=("raysubmit_1",), resources=resources, nodes=(gpus(0.0),)))
    assert len(told.issues) == 1
    assert "raysubmit_1 is RUNNING" in told.issues[0]
    assert "none of its 8 GPUs" in told.issues[0]
    assert "--entrypoint-num-gpus" in told.issues[0]


def test_allotted_but_idle_is_the_other_trap() -> None:
    resources = RayResources(gpus_total=8, gpus_allotted=8)
    told = judge(Seen(status=status(), resources=resources, nodes=(gpus(1.0),)))
    assert "no GPU is busy" in told.issues[0]


def test_gpus_used_beside_ray_are_no_trap() -> None:
    resources = RayResources(gpus_total=8, gpus_allotted=0)
    assert judge(Seen(status=status(), resources=resources, nodes=(gpus(90.0),))).healthy


def test_a_job_that_still_starts_may_leave_its_gpus_idle() -> None:
    starting = JobStatus(job="j", attempt=0, step=None, phase="model-load", step_age_seconds=None)
    resources = RayResources(gpus_total=8, gpus_allotted=8)
    told = judge(Seen(status=status(jobs=(starting,)), resources=resources, nodes=(gpus(0.0),)))
    assert told.healthy


def test_sockets_beside_idle_devices_are_an_issue() -> None:
    device = DeviceTraffic(device="efa0", port="1", kind="efa", active=True, bytes_per_second=0.0)
    node = NodeView(host="n", transport=TransportLines(used="socket"), devices=(device,))
    told = judge(Seen(nodes=(node, node)))
    assert told.transport is not None
    assert told.transport.used == "socket"
    assert not told.transport.efa_active
    assert "NCCL_NET=ofi" in told.issues[0]


def test_the_kernels_old_word_is_history() -> None:
    xid = KernelLine(text="NVRM: Xid 79", kind="gpu-lost", time=1000.0)
    node = NodeView(host="n", kernel=(xid,), blocked=(BlockedTask(pid=7, tid=7, wchan="nfs"),))
    assert len(judge(Seen(nodes=(node,), time=1000.0 + HOUR / 2)).issues) == 2
    assert len(judge(Seen(nodes=(node,), time=1000.0 + 2 * HOUR)).issues) == 1


def test_late_and_missing_checkpoints() -> None:
    entries = [FolderEntry(path=f"step_{n}00/m.pt", size=10, modified=n * 100.0) for n in (1, 2, 3)]
    saved = checkpoint_health("/c", read_listing(entries, now=310.0))
    assert judge(Seen(checkpoints=saved)).healthy
    assert saved.latest_step == 300
    late = checkpoint_health("/c", read_listing(entries, now=5000.0))
    assert "last checkpoint is" in judge(Seen(checkpoints=late)).issues[0]
    empty = checkpoint_health("/c", read_listing([], now=1.0))
    assert "no complete checkpoint" in judge(Seen(checkpoints=empty)).issues[0]

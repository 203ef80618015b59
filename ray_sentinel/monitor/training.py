"""One report over GPUs, transport, Ray's resources and checkpoints, here or over pods."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence.checkpoints import CheckpointFacts, FolderEntry, is_tracker, read_listing
from ray_sentinel.evidence.node.judge import trap_of
from ray_sentinel.logs.checkpoints import scan_checkpoints
from ray_sentinel.model.health import GpuHealth, RayResources
from ray_sentinel.model.thresholds import GPU_IDLE
from ray_sentinel.monitor.cluster import (
    check_efa_utilization,
    check_gpu_utilization,
    verify_ray_resources,
)
from ray_sentinel.monitor.shell import Shell
from ray_sentinel.monitor.types import (
    CheckpointInfo,
    EfaInfo,
    GpuInfo,
    RayInfo,
    TrainingHealth,
)
from ray_sentinel.text import clean

_FIND_SECONDS = 60.0
"""Seconds to list a checkpoint folder on a shared file system."""


def get_training_health(
    head_pod: str = "",
    checkpoint_dir: str = "",
    all_pods: Sequence[str] = (),
    namespace: str = "default",
) -> TrainingHealth:
    """Look at every pod (the head's alone where ``all_pods`` is empty; here where that is too)."""
    pods = list(all_pods) or [head_pod]
    gpus = {pod or "here": check_gpu_utilization(pod, namespace) for pod in pods}
    ray = verify_ray_resources(head_pod, namespace)
    transports = {pod or "here": check_efa_utilization(pod, namespace) for pod in pods}
    efa = _weakest(list(transports.values()))
    saved = get_checkpoints(checkpoint_dir, head_pod, namespace) if checkpoint_dir else None
    gpu = _together(list(gpus.values()))
    issues = [
        *_gpu_issues(gpus, gpu, ray),
        *_efa_issues(transports),
        *_other_issues(efa, ray, saved),
    ]
    return TrainingHealth(
        healthy=not issues,
        issues=issues,
        gpu=gpu,
        gpus=gpus,
        efa=efa,
        ray=ray,
        checkpoints=saved,
    )


def get_checkpoints(
    checkpoint_dir: str, head_pod: str = "", namespace: str = "default"
) -> CheckpointInfo:
    """The checkpoints below a folder, of this machine or of a pod."""
    try:
        facts = (
            list_checkpoints(Shell(head_pod, namespace), checkpoint_dir)
            if head_pod
            else scan_checkpoints(Path(checkpoint_dir))
        )
        error = ""
    except SentinelError as failure:
        facts, error = CheckpointFacts(), str(failure)
    whole = [item for item in facts.checkpoints if item.complete]
    return CheckpointInfo(
        latest_step=facts.latest_complete.step if facts.latest_complete else None,
        count=len(whole),
        age_seconds=facts.age_seconds,
        interval_steps=facts.interval_steps,
        interval_seconds=facts.interval_seconds,
        total_bytes=facts.total_bytes,
        problems=list(facts.problems),
        healthy=bool(whole),
        error=error,
    )


def list_checkpoints(shell: Shell, folder: str) -> CheckpointFacts:
    """The entries of a folder in the pod, listed by GNU find: ``type, size, time, path, link's
    target`` of each.

    A file that vanishes meanwhile, as old checkpoints do, is no failure. Raises UnreachableError.
    """
    form = "%y\\t%s\\t%T@\\t%P\\t%l\\n"
    program = 'find "$1" -maxdepth 6 -printf "$2"; [ -d "$1" ]'
    text = shell.run("sh", "-c", program, "sh", folder, form, deadline=_FIND_SECONDS)
    entries, links, texts = [], {}, {}
    for line in text.splitlines():
        kind, size, when, path, target = (*line.split("\t"), "", "", "", "", "")[:5]
        if kind == "l":
            links[path] = target
        elif kind == "f" and size.isdigit():
            entries.append(FolderEntry(path=path, size=int(size), modified=float(when or 0)))
            if is_tracker(path):
                texts[path] = shell.run("head", "-c", "4096", f"{folder.rstrip('/')}/{path}")
    return read_listing(entries, links, texts, time.time())


def _together(found: Sequence[GpuInfo]) -> GpuInfo:
    used = [percent for one in found for percent in one["gpu_utilizations"]]
    return GpuInfo(
        gpu_count=sum(one["gpu_count"] for one in found),
        gpu_utilizations=used,
        memory_used=[value for one in found for value in one["memory_used"]],
        memory_total=[value for one in found for value in one["memory_total"]],
        processes=[process for one in found for process in one["processes"]],
        avg_utilization=sum(used) / len(used) if used else 0.0,
        healthy=all(one["healthy"] for one in found),
        error="; ".join(one["error"] for one in found if one["error"]),
    )


def _weakest(found: Sequence[EfaInfo]) -> EfaInfo:
    """The transport of all pods: one pod on sockets makes all of them wait for it."""
    order = ("socket", "other", "roce", "infiniband", "efa", "unknown")
    return min(found, key=lambda one: order.index(one["transport"]))


def _gpu_issues(gpus: dict[str, GpuInfo], gpu: GpuInfo, ray: RayInfo) -> list[str]:
    issues = [f"{pod}: {one['error']}" for pod, one in gpus.items() if not one["healthy"]]
    seen = GpuHealth(
        count=gpu["gpu_count"],
        busy=sum(1 for percent in gpu["gpu_utilizations"] if percent > 100 * GPU_IDLE.limit),
        processes=len(gpu["processes"]),
        avg_utilization=gpu["avg_utilization"] if gpu["gpu_utilizations"] else None,
    )
    resources = None
    if ray["healthy"]:
        resources = RayResources(gpus_total=ray["gpus_available"], gpus_allotted=ray["gpus_used"])
    trap = trap_of("training should run", resources, seen if seen.count else None)
    return [*issues, trap] if trap else issues


def _efa_issues(transports: dict[str, EfaInfo]) -> list[str]:
    """Lines about EFA devices that NCCL does not mention: it may use sockets, which no device
    shows."""
    silent = [
        pod
        for pod, one in transports.items()
        if one["transport"] == "unknown" and any("(efa)" in device for device in one["devices"])
    ]
    if not silent:
        return []
    return [
        f"{', '.join(silent)}: EFA devices are there, and no NET line of NCCL in Ray's logs says "
        "what is used: it may have fallen back to TCP sockets. Set NCCL_DEBUG=INFO, and "
        "NCCL_NET=ofi with aws-ofi-nccl in LD_LIBRARY_PATH"
    ]


def _other_issues(efa: EfaInfo, ray: RayInfo, saved: CheckpointInfo | None) -> list[str]:
    issues = []
    if not ray["healthy"]:
        issues.append(f"Ray's resources could not be asked: {ray['error']}")
    issues += [f"Ray cannot satisfy a request: {demand}" for demand in ray["demands"]]
    if efa["transport"] == "socket" and efa["devices"]:
        issues.append(
            "NCCL uses TCP sockets although RDMA devices are there: set NCCL_NET=ofi and put "
            "aws-ofi-nccl into LD_LIBRARY_PATH (EFA), or look at NCCL_IB_DISABLE and NCCL_IB_HCA"
        )
    if saved is not None and not saved["healthy"]:
        issues.append(f"no complete checkpoint: {saved['error'] or 'a restart begins at step 0'}")
    return issues


def print_training_health(report: TrainingHealth, file: TextIO | None = None) -> None:
    """Print a report of ``get_training_health``, to stdout by default."""
    gpu, efa, ray, saved = report["gpu"], report["efa"], report["ray"], report["checkpoints"]
    lines = [
        "healthy" if report["healthy"] else "NOT HEALTHY",
        *(f"  ! {issue}" for issue in report["issues"]),
        f"GPUs: {gpu['gpu_count']}, {gpu['avg_utilization']:.0f} % on average, "
        f"{len(gpu['processes'])} processes",
        f"Ray: {ray['gpus_used']:g}/{ray['gpus_available']:g} GPUs, "
        f"{ray['cpus_used']:g}/{ray['cpus_available']:g} CPUs allotted",
        f"transport in use: {efa['transport']}",
    ]
    if saved is not None:
        lines.append(f"checkpoints: {saved['count']} complete, latest step {saved['latest_step']}")
        lines += [f"  ! {problem}" for problem in saved["problems"][:8]]
    print("\n".join(clean(line) for line in lines), file=file or sys.stdout)

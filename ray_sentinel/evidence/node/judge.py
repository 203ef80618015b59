"""Turns what nodes, Ray and the coordinator show into one report: healthy, or the issues.

The problem that this looks for first is a job that Ray calls RUNNING while its GPUs do nothing.
Either nobody requested GPUs from Ray (a script started by ``ray job submit`` gets none by itself),
or they are allocated and idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ray_sentinel.evidence.checkpoints import CheckpointFacts
from ray_sentinel.evidence.node.kernel_faults import each_once
from ray_sentinel.evidence.node.transport import judge_transport
from ray_sentinel.model.health import (
    CheckpointHealth,
    GpuHealth,
    Health,
    KernelLine,
    NodeView,
    RayResources,
    TransportHealth,
)
from ray_sentinel.model.status import JobStatus, Status
from ray_sentinel.model.thresholds import GPU_HOT, GPU_IDLE

STALE_SECONDS = 5.0
"""Seconds without a snapshot after which a node does not report any more: snapshots come once a
second."""
_LATE = 3.0
"""Number of its usual intervals after which a checkpoint is late."""
_RECENT = 3600.0
"""Seconds after which an event in the kernel's log is history and no longer an issue."""
_NOT_ALLOTTED = (
    "{who} while Ray has allotted none of its {total:.0f} GPUs: nothing asked Ray for them. Give "
    "the training's actors num_gpus (Ray Train: ScalingConfig(use_gpu=True)); a script that uses "
    "GPUs itself needs `ray job submit --entrypoint-num-gpus N`, or has to be started on the head "
    "node"
)
_IDLE = (
    "{who} and {allotted:.0f} GPUs are allotted, but no GPU is busy: it is still loading, waits "
    "for data or for a peer, or hangs: see `ray-sentinel status` and `ray-sentinel triage --live`"
)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that could be examined; None or empty for what could not."""

    status: Status | None = None
    nodes: tuple[NodeView, ...] = ()
    resources: RayResources | None = None
    checkpoints: CheckpointHealth | None = None
    running: tuple[str, ...] = ()
    """Jobs that Ray calls RUNNING, in addition to those of ``status``."""
    notes: tuple[str, ...] = ()
    time: float = 0.0


def judge(seen: Seen) -> Health:
    """The report. It is healthy if it has no issue."""
    gpu = _gpus(seen.nodes)
    transport = judge_transport([(n.host, n.transport, n.devices) for n in seen.nodes])
    issues = (
        *_status_issues(seen.status),
        *_trap(seen, gpu),
        *_resource_issues(seen.resources),
        *_transport_issues(transport, len(seen.nodes)),
        *_node_issues(seen.nodes, seen.time),
        *_checkpoint_issues(seen.checkpoints),
    )
    unseen = [f"{node.host}: {problem}" for node in seen.nodes for problem in node.problems]
    return Health(
        healthy=not issues,
        verdict=_verdict(seen.status, issues),
        issues=issues,
        gpu=gpu,
        ray=seen.resources,
        transport=transport,
        checkpoints=seen.checkpoints,
        progress=_progress(seen.status),
        collectors={"failing": dict(_failing(seen.status))} if seen.status else None,
        logs=tuple(line for node in seen.nodes for line in node.errors)[:40],
        nodes=seen.nodes,
        notes=(*seen.notes, *unseen),
        time=seen.time,
    )


def checkpoint_health(folder: str, facts: CheckpointFacts) -> CheckpointHealth:
    """The part about checkpoints, from a listing."""
    return CheckpointHealth(
        folder=folder,
        latest_step=facts.latest_complete.step if facts.latest_complete else None,
        count=sum(1 for item in facts.checkpoints if item.complete),
        age_seconds=facts.age_seconds,
        interval_steps=facts.interval_steps,
        interval_seconds=facts.interval_seconds,
        bytes=facts.total_bytes,
        problems=facts.problems,
    )


def trap_of(who: str, resources: RayResources | None, gpu: GpuHealth | None) -> str:
    """What is wrong if something runs and no GPU works for it; otherwise empty."""
    busy = gpu is not None and (gpu.busy > 0 or gpu.avg_utilization is None)
    if resources is not None and resources.gpus_total > 0 and resources.gpus_allotted == 0:
        if not busy:
            return _NOT_ALLOTTED.format(who=who, total=resources.gpus_total)
    elif gpu is not None and gpu.count and not busy:
        allotted = resources.gpus_allotted if resources else float(gpu.count)
        return _IDLE.format(who=who, allotted=allotted)
    return ""


def _gpus(nodes: Sequence[NodeView]) -> GpuHealth | None:
    gpus = [gpu for node in nodes for gpu in node.gpus]
    if not gpus:
        return None
    used = [g.utilization_percent for g in gpus if g.utilization_percent is not None]
    watts = [g.power_watts for g in gpus if g.power_watts is not None]
    return GpuHealth(
        count=len(gpus),
        busy=sum(1 for percent in used if percent > 100 * GPU_IDLE.limit),
        processes=sum(len(node.gpu_processes) for node in nodes),
        avg_utilization=round(sum(used) / len(used), 1) if used else None,
        power_watts=round(sum(watts), 1) if watts else None,
    )


def _status_issues(status: Status | None) -> Iterator[str]:
    if status is None:
        return
    if status.state not in ("healthy", "unknown"):
        yield status.verdict
    for node in status.unwatched:
        yield f"{node.host} is not watched: {node.reason}"
    for watched in status.nodes:
        if (watched.snapshot_age_seconds or 0.0) > STALE_SECONDS:
            yield f"{watched.host} has not reported for {watched.snapshot_age_seconds:.0f} s"
    for name, why in _failing(status):
        yield f"collector {name}: {why}"


def _failing(status: Status) -> Iterator[tuple[str, str]]:
    for node in status.nodes:
        for collector in node.collectors:
            failed = collector.state == "running" and collector.success is False
            if collector.state in ("quarantined", "stuck") or failed:
                yield f"{node.host}/{collector.name}", collector.message or collector.state


def _trap(seen: Seen, gpu: GpuHealth | None) -> Iterator[str]:
    jobs = [job for job in (seen.status.jobs if seen.status else ()) if not job.ended]
    names = tuple(dict.fromkeys((*(job.job for job in jobs), *seen.running)))
    if not names or _starts(jobs):
        return
    who = f"{', '.join(names[:4])} {'is' if len(names) == 1 else 'are'} RUNNING"
    if found := trap_of(who, seen.resources, gpu):
        yield found


def _starts(jobs: Sequence[JobStatus]) -> bool:
    """A job that has not made a step yet may well leave its GPUs idle."""
    return bool(jobs) and all(job.step is None and job.phase not in ("", "train") for job in jobs)


def _resource_issues(resources: RayResources | None) -> Iterator[str]:
    if resources is None:
        return
    for demand in resources.demands[:5]:
        yield f"Ray cannot satisfy a request: {demand}"


def _transport_issues(transport: TransportHealth | None, nodes: int) -> Iterator[str]:
    if transport is None or transport.used != "socket" or nodes < 2:
        return
    if transport.devices:
        yield (
            "NCCL sends through TCP sockets although RDMA devices are there "
            f"({', '.join(transport.devices[:4])}): on EFA set NCCL_NET=ofi (or FI_PROVIDER=efa) "
            "and put the aws-ofi-nccl library into LD_LIBRARY_PATH; on InfiniBand or RoCE look at "
            "NCCL_IB_DISABLE, NCCL_IB_HCA and whether /dev/infiniband is in the container"
        )


def _node_issues(nodes: Sequence[NodeView], now: float) -> Iterator[str]:
    for node in nodes:
        for task in node.blocked[:4]:
            where = f" in {task.wchan}" if task.wchan else ""
            yield f"{node.host}: {task.name} (pid {task.pid}) is blocked in the kernel{where}"
        for gpu, heat in _too_hot(node)[:4]:
            yield f"{node.host}: GPU {gpu} is at {heat:.0f} °C: {GPU_HOT.phrase}"
        for line in grave_lines(node, now)[-3:]:
            yield f"{node.host}: the kernel says: {line.text}"


def _too_hot(node: NodeView) -> list[tuple[str, float]]:
    """The index and the degrees Celsius of each GPU that is too hot."""
    known = [(gpu.index, gpu.temperature_celsius) for gpu in node.gpus]
    return [(gpu, heat) for gpu, heat in known if heat is not None and GPU_HOT.crossed(heat)]


def grave_lines(node: NodeView, now: float) -> list[KernelLine]:
    """Recent kernel lines about a lost GPU or exhausted memory, one for each fault."""
    return each_once(
        line
        for line in node.kernel
        if line.kind in ("gpu-lost", "oom-host")
        and (line.time is None or now - line.time < _RECENT)
    )


def _checkpoint_issues(checkpoints: CheckpointHealth | None) -> Iterator[str]:
    if checkpoints is None:
        return
    if not checkpoints.count:
        yield f"{checkpoints.folder} holds no complete checkpoint: a restart begins at step 0"
    age, usual = checkpoints.age_seconds, checkpoints.interval_seconds
    if age is not None and usual and age > _LATE * usual + 60:
        yield f"the last checkpoint is {age:.0f} s old, usual are {usual:.0f} s between two"


def _verdict(status: Status | None, issues: Sequence[str]) -> str:
    if issues:
        more = f", and {len(issues) - 1} more" if len(issues) > 1 else ""
        return f"{issues[0]}{more}"
    return status.verdict if status is not None and status.verdict else "nothing is wrong"


def _progress(
    status: Status | None,
) -> dict[str, dict[str, int | float | str | None]] | None:
    if status is None:
        return None
    return {
        job.job: {
            "state": job.state,
            "step": job.step,
            "step_age": job.step_age_seconds,
            "step_seconds": job.step_seconds,
            "steps_per_second": 1 / job.step_seconds if job.step_seconds else None,
        }
        for job in status.jobs
        if not job.ended
    }

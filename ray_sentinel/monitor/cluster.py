"""Queries GPUs, Ray's resources and the transport by running programs, here or in a pod."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence.node.nvidia_smi import parse
from ray_sentinel.evidence.node.ray_status import read_status
from ray_sentinel.evidence.node.transport import judge_transport, read_transport
from ray_sentinel.inspection.gpus import gpus_here
from ray_sentinel.inspection.rdma import device_traffic
from ray_sentinel.inspection.session_logs import transport_lines
from ray_sentinel.masking import mask
from ray_sentinel.model.health import (
    DeviceTraffic,
    GpuProcess,
    GpuState,
    RayResources,
    TransportHealth,
    TransportLines,
)
from ray_sentinel.model.triage import LogLine
from ray_sentinel.monitor.shell import Shell
from ray_sentinel.monitor.types import EfaInfo, GpuInfo, RayInfo
from ray_sentinel.nvidia_smi import OPTIONS
from ray_sentinel.text import one_line

_MB = 1 << 20
_MOST_LINES = "200"


def check_gpu_utilization(head_pod: str = "", namespace: str = "default") -> GpuInfo:
    """The GPUs of a pod, or of this machine where ``head_pod`` is empty."""
    try:
        gpus, processes, error = _gpus(Shell(head_pod, namespace))
    except SentinelError as failure:
        gpus, processes, error = (), (), str(failure)
    used = [gpu.utilization_percent for gpu in gpus if gpu.utilization_percent is not None]
    return GpuInfo(
        gpu_count=len(gpus),
        gpu_utilizations=used,
        memory_used=[g.memory_used_bytes / _MB for g in gpus if g.memory_used_bytes is not None],
        memory_total=[g.memory_total_bytes / _MB for g in gpus if g.memory_total_bytes is not None],
        processes=[
            {
                "gpu": process.gpu,
                "pid": process.pid,
                "name": process.name,
                "memory_used": process.memory_bytes / _MB if process.memory_bytes else None,
            }
            for process in processes
        ],
        avg_utilization=sum(used) / len(used) if used else 0.0,
        healthy=bool(gpus) and not error,
        error=error or ("" if gpus else "no GPU was found"),
    )


def _gpus(shell: Shell) -> tuple[tuple[GpuState, ...], tuple[GpuProcess, ...], str]:
    if not shell.pod:
        return gpus_here()
    answer = parse(shell.run("nvidia-smi", *OPTIONS))
    return answer.states, answer.processes, ""


def verify_ray_resources(head_pod: str = "", namespace: str = "default") -> RayInfo:
    """What ``ray status`` reports: totals, allocated resources, and unmet requests."""
    error, told = "`ray status` printed nothing that is known", None
    try:
        told = read_status(Shell(head_pod, namespace).run("ray", "status"))
    except SentinelError as failure:
        error = str(failure)
    healthy, told = told is not None, told or RayResources()
    return RayInfo(
        gpus_available=told.gpus_total,
        gpus_used=told.gpus_allotted,
        cpus_available=told.cpus_total,
        cpus_used=told.cpus_allotted,
        demands=list(told.demands),
        healthy=healthy,
        error="" if healthy else error,
    )


def check_efa_utilization(head_pod: str = "", namespace: str = "default") -> EfaInfo:
    """The transport in use, from NCCL's lines in Ray's logs, and on this machine also from
    counters.

    That an EFA device is present and active proves nothing.
    """
    error, seen = "", None
    try:
        shell = Shell(head_pod, namespace)
        lines = _nccl_lines(shell)
        seen = judge_transport([(head_pod or "here", lines, _devices(shell))])
    except SentinelError as failure:
        error = str(failure)
    seen = seen or TransportHealth(used="")
    return EfaInfo(
        efa_active=seen.efa_active,
        transport=seen.used or "unknown",
        devices=list(seen.devices),
        evidence=list(seen.evidence),
        healthy=bool(seen.used),
        error=error,
    )


def _nccl_lines(shell: Shell) -> TransportLines:
    if not shell.pod:
        return transport_lines(Path(shell.logs))
    # grep's status 1 means that no line was found: an answer, not a failure.
    pattern = "NET/(OFI|IB|Socket|Plugin)|Using network"
    _, text = shell.ask("grep", "-rhaE", "-m", _MOST_LINES, pattern, shell.logs)
    return read_transport(
        LogLine(file=shell.logs, line=None, text=mask(one_line(line, 400)))
        for line in text.splitlines()
        if "NET/" in line or "Using network" in line
    )


def _devices(shell: Shell) -> tuple[DeviceTraffic, ...]:
    if not shell.pod:
        return device_traffic()
    well, text = shell.ask("ls", "/sys/class/infiniband")
    return tuple(
        DeviceTraffic(
            device=name,
            port="",
            kind="efa" if name.startswith(("efa", "rdmap")) else "infiniband",
            active=True,
        )
        for name in (text.split() if well else ())
    )

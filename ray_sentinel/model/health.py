"""The health of a training: what one node shows, and the report over all nodes."""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.notebook import NotebookRecord
from ray_sentinel.model.triage import LogLine

Transport = Literal["efa", "infiniband", "roce", "socket", "other", ""]
"""What NCCL uses to send data between nodes; empty where nothing tells."""


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU now. Absent facts are None."""

    index: str
    uuid: str = ""
    name: str = ""
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that uses a GPU. ``gpu`` is its index, or else its UUID, or the driver's own number
    for it (``kfd-123``)."""

    gpu: str
    pid: int
    name: str = ""
    memory_bytes: int | None = None


class BlockedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task in uninterruptible sleep (D)."""

    pid: int
    tid: int
    name: str = ""
    command: str = ""
    wchan: str = ""
    """The kernel function in which it waits; empty where the kernel does not say."""
    stack: tuple[str, ...] = ()
    """Kernel frames, innermost first; only root may read them."""


class KernelLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the kernel's log. ``kind`` is a failure class, if one is known."""

    text: str
    kind: str = ""
    time: float | None = None


class DeviceTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """A port of an RDMA device and its traffic while it was observed, in bytes per second."""

    device: str
    port: str
    kind: Transport
    """One of "efa", "infiniband", "roce" and "other"."""
    active: bool
    bytes_per_second: float | None = None


class TransportLines(msgspec.Struct, frozen=True, kw_only=True):
    """What NCCL's own lines in a node's logs show."""

    used: Transport = ""
    """The transport in use, from ``via NET/...``, ``Using network ...``, ``Selected provider is
    ...``."""
    network: str = ""
    """NCCL's own name for the transport."""
    fell_back: str = ""
    """The line that reports that a plugin or device could not be used."""
    lines: tuple[LogLine, ...] = ()


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """What is visible of one node now."""

    host: str
    node_id: str = ""
    address: str = ""
    time: float = 0.0
    versions: dict[str, str] = {}
    """Versions of ``kernel`` and ``os``, and of drivers: ``nvidia``, ``amdgpu``, ``efa``,
    ``mlx5_core``, ..."""
    blocked: tuple[BlockedTask, ...] = ()
    kernel: tuple[KernelLine, ...] = ()
    gpus: tuple[GpuState, ...] = ()
    gpu_processes: tuple[GpuProcess, ...] = ()
    devices: tuple[DeviceTraffic, ...] = ()
    transport: TransportLines = TransportLines()
    errors: tuple[LogLine, ...] = ()
    """The last lines of the node's logs that speak of trouble."""
    problems: tuple[str, ...] = ()
    """What could not be looked at, and why."""


class RayResources(msgspec.Struct, frozen=True, kw_only=True):
    """What Ray has, what it has allocated, and which requests are unmet."""

    gpus_total: float = 0.0
    gpus_allotted: float = 0.0
    cpus_total: float = 0.0
    cpus_allotted: float = 0.0
    demands: tuple[str, ...] = ()
    """Requests that are waiting, in Ray's words."""
    nodes: int | None = None


class GpuHealth(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs together."""

    count: int
    busy: int
    """How many GPUs have a utilization above a few percent."""
    processes: int
    avg_utilization: float | None = None
    """Mean utilization in percent."""
    power_watts: float | None = None
    """Power of all GPUs together, in watts."""


class TransportHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The transport in use, and how that is known."""

    used: Transport
    by: Literal["log", "counters", ""] = ""
    devices: tuple[str, ...] = ()
    """RDMA devices that are present, which says nothing about their use."""
    efa_active: bool = False
    evidence: tuple[str, ...] = ()


class CheckpointHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints of a folder."""

    folder: str
    latest_step: int | None = None
    count: int = 0
    age_seconds: float | None = None
    interval_steps: int | None = None
    interval_seconds: float | None = None
    bytes: int = 0
    problems: tuple[str, ...] = ()


class Health(NotebookRecord, msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``ray-sentinel health``. A part that could not be examined is None."""

    healthy: bool
    verdict: str
    """The verdict as one sentence."""
    issues: tuple[str, ...] = ()
    gpu: GpuHealth | None = None
    ray: RayResources | None = None
    transport: TransportHealth | None = None
    checkpoints: CheckpointHealth | None = None
    progress: dict[str, dict[str, int | float | str | None]] | None = None
    """For each job ``state``, ``step``, ``step_age`` (seconds), ``step_seconds`` and
    ``throughput``, where known."""
    collectors: dict[str, dict[str, str]] | None = None
    """Under ``failing``, the reasons by host and name of the collector ("host/name")."""
    logs: tuple[LogLine, ...] = ()
    """The last error lines of all nodes."""
    nodes: tuple[NodeView, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be looked at, and the remedy."""
    time: float = 0.0

"""What the monitor's functions return: plain dictionaries with these keys."""

from __future__ import annotations

from typing import TypedDict

from ray_sentinel.model.ray_job import JobState


class GpuInfo(TypedDict):
    """The answer of ``check_gpu_utilization``. Memory in MB, utilization in percent, by GPU."""

    gpu_count: int
    gpu_utilizations: list[float]
    memory_used: list[float]
    memory_total: list[float]
    processes: list[dict[str, int | float | str | None]]
    avg_utilization: float
    healthy: bool
    """Whether the check succeeded; without a GPU it did not."""
    error: str


class RayInfo(TypedDict):
    """The answer of ``verify_ray_resources``."""

    gpus_available: float
    gpus_used: float
    cpus_available: float
    cpus_used: float
    demands: list[str]
    """Requests that Ray cannot satisfy."""
    healthy: bool
    """Whether the check succeeded."""
    error: str


class EfaInfo(TypedDict):
    """The answer of ``check_efa_utilization``."""

    efa_active: bool
    transport: str
    """One of "efa", "infiniband", "roce", "socket", "other" and "unknown"."""
    devices: list[str]
    """RDMA devices that are present, in use or not."""
    evidence: list[str]
    healthy: bool
    error: str


class CheckpointInfo(TypedDict):
    """The checkpoints of ``get_training_health``."""

    latest_step: int | None
    count: int
    age_seconds: float | None
    interval_steps: int | None
    interval_seconds: float | None
    total_bytes: int
    problems: list[str]
    healthy: bool
    error: str


class JobProgress(TypedDict):
    """The answer of ``get_progress``: the last step and what its lines say."""

    step: int | None
    total_steps: int | None
    step_seconds: float | None
    steps_per_second: float | None
    tokens_per_second: float | None
    loss: float | None
    step_time: float | None
    """Unix seconds of the last step's line; None where lines bear no time."""


class MonitorResult(TypedDict):
    """The answer of ``monitor_job``. ``duration`` is in seconds."""

    status: JobState
    duration: float
    final_step: int | None
    stalled: bool
    timed_out: bool
    tokens_per_second: float | None


class RestartResult(TypedDict):
    """The answer of ``auto_restart``."""

    success: bool
    final_step: int | None
    total_retries: int
    reason: str
    job_id: str
    """The id of the last attempt; empty where no job was found."""
    time_lost_seconds: float


class TrainingHealth(TypedDict):
    """The answer of ``get_training_health``."""

    healthy: bool
    issues: list[str]
    gpu: GpuInfo
    gpus: dict[str, GpuInfo]
    """GPUs by pod."""
    efa: EfaInfo
    ray: RayInfo
    checkpoints: CheckpointInfo | None

"""The GPUs of this node and who holds them: ``nvidia-smi``, or amdgpu's files."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel import nvidia_smi
from ray_sentinel.errors import SentinelError
from ray_sentinel.inspection.amd_gpus import amd_gpus_here
from ray_sentinel.model.health import GpuProcess, GpuState


def gpus_here(
    sys: Path = Path("/sys"), proc: Path = Path("/proc")
) -> tuple[tuple[GpuState, ...], tuple[GpuProcess, ...], str]:
    """(GPUs, processes on them, what went wrong or empty). Having no GPU is not a problem."""
    try:
        answer = nvidia_smi.ask()
    except SentinelError as error:
        return (), (), str(error)
    if answer is None:
        return *amd_gpus_here(sys, proc), ""
    return answer.states, answer.processes, ""

"""The GPUs of this node and who holds them: ``nvidia-smi``, or amdgpu's files."""

from __future__ import annotations

import shutil
from pathlib import Path

from ray_sentinel import process
from ray_sentinel.evidence.node.gpu_table import (
    GPU_FIELDS,
    PROCESS_FIELDS,
    read_gpus,
    read_processes,
)
from ray_sentinel.inspection.amd_gpus import amd_gpus_here
from ray_sentinel.model.health import GpuProcess, GpuState
from ray_sentinel.text import one_line

_DEADLINE = 10.0
"""Seconds; ``nvidia-smi`` waits for a driver that hangs."""


def gpus_here(
    sys: Path = Path("/sys"), proc: Path = Path("/proc")
) -> tuple[tuple[GpuState, ...], tuple[GpuProcess, ...], str]:
    """(GPUs, processes on them, what went wrong or empty). No GPU is nothing wrong."""
    if shutil.which("nvidia-smi") is not None:
        return _nvidia()
    return *amd_gpus_here(sys, proc), ""


def _nvidia() -> tuple[tuple[GpuState, ...], tuple[GpuProcess, ...], str]:
    answers = []
    for option in (f"--query-gpu={GPU_FIELDS}", f"--query-compute-apps={PROCESS_FIELDS}"):
        done = process.run(
            ["nvidia-smi", option, "--format=csv,noheader,nounits"], deadline=_DEADLINE
        )
        if not done.ok:
            said = done.stdout.decode("utf-8", "replace").strip().splitlines()[:1]
            return (), (), " ".join([done.explain(), *(one_line(line, 200) for line in said)])
        answers.append(done.stdout.decode("utf-8", "replace"))
    gpus = read_gpus(answers[0])
    return gpus, read_processes(answers[1], {gpu.uuid: gpu.index for gpu in gpus}), ""

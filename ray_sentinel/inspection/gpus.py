"""The GPUs of this node and who holds them: ``nvidia-smi``, or amdgpu's files."""

from __future__ import annotations

import shutil
from pathlib import Path

from ray_sentinel import process
from ray_sentinel.evidence.logs.mask import mask
from ray_sentinel.evidence.node.gpu_table import (
    GPU_FIELDS,
    PROCESS_FIELDS,
    read_gpus,
    read_processes,
)
from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.model.health import GpuProcess, GpuState
from ray_sentinel.text import one_line

_DEADLINE = 10.0
_AMD = "0x1002"


def gpus_here(
    sys: Path = Path("/sys"), proc: Path = Path("/proc")
) -> tuple[tuple[GpuState, ...], tuple[GpuProcess, ...], str]:
    """(GPUs, processes on them, what went wrong or empty). No GPU is nothing wrong."""
    if shutil.which("nvidia-smi") is not None:
        return _nvidia()
    return _amd(sys), _amd_processes(sys, proc), ""


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


def _amd(sys: Path) -> tuple[GpuState, ...]:
    """``/sys/class/drm/card*/device`` of AMD, in the order of PCI addresses."""
    devices = {
        card.resolve()
        for card in (sys / "class" / "drm").glob("card[0-9]*/device")
        if kernel_text(card / "vendor") == _AMD and (card / "mem_info_vram_total").exists()
    }
    found = []
    for index, device in enumerate(sorted(devices)):
        watts = next(iter(sorted(device.glob("hwmon/hwmon*/power1_average"))), None)
        heat = next(iter(sorted(device.glob("hwmon/hwmon*/temp1_input"))), None)
        power, degrees = _int(watts) if watts else None, _int(heat) if heat else None
        percent = _int(device / "gpu_busy_percent")
        found.append(
            GpuState(
                index=str(index),
                uuid=device.name,
                name=kernel_text(device / "product_name"),
                utilization_percent=float(percent) if percent is not None else None,
                memory_used_bytes=_int(device / "mem_info_vram_used"),
                memory_total_bytes=_int(device / "mem_info_vram_total"),
                power_watts=power / 1e6 if power is not None else None,
                temperature_celsius=degrees / 1000 if degrees is not None else None,
            )
        )
    return tuple(found)


def _amd_processes(sys: Path, proc: Path) -> tuple[GpuProcess, ...]:
    """``/sys/class/kfd/kfd/proc/<pid>/vram_<gpu id>``: who has opened the compute driver."""
    found = []
    for folder in sorted((sys / "class" / "kfd" / "kfd" / "proc").glob("[0-9]*")):
        name = mask(one_line(kernel_text(proc / folder.name / "comm"), 64))
        for used in sorted(folder.glob("vram_*")):
            size = _int(used)
            if size:
                gpu = used.name.removeprefix("vram_")
                found.append(
                    GpuProcess(gpu=gpu, pid=int(folder.name), name=name, memory_bytes=size)
                )
    return tuple(found)


def _int(path: Path) -> int | None:
    text = kernel_text(path)
    return int(text) if text.lstrip("-").isdigit() else None

"""``nvidia-smi --query-... --format=csv,noheader,nounits`` read into records.

A field that the driver does not support is ``[N/A]``, ``[Not Supported]`` or ``[Unknown Error]``:
it is absent then. Memory is in MiB, power in watts, utilization in percent (``nvidia-smi
--help-query-gpu``).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping

from ray_sentinel.model.health import GpuProcess, GpuState

GPU_FIELDS = "index,uuid,name,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu"
PROCESS_FIELDS = "gpu_uuid,pid,process_name,used_memory"
_MIB = 1 << 20


def read_gpus(text: str) -> tuple[GpuState, ...]:
    """The rows of ``--query-gpu=`` with ``GPU_FIELDS``; lines of another form are left out."""
    rows = [row for row in csv.reader(text.splitlines(), skipinitialspace=True) if len(row) == 8]
    return tuple(
        GpuState(
            index=row[0].strip(),
            uuid=row[1].strip(),
            name=row[2].strip(),
            utilization_percent=_number(row[3]),
            memory_used_bytes=_mebibytes(row[4]),
            memory_total_bytes=_mebibytes(row[5]),
            power_watts=_number(row[6]),
            temperature_celsius=_number(row[7]),
        )
        for row in rows
        if row[0].strip().isdigit()
    )


def read_processes(text: str, indices: Mapping[str, str]) -> tuple[GpuProcess, ...]:
    """The rows of ``--query-compute-apps=`` with ``PROCESS_FIELDS``; ``indices``: uuid → index."""
    rows = [row for row in csv.reader(text.splitlines(), skipinitialspace=True) if len(row) >= 4]
    return tuple(
        GpuProcess(
            gpu=indices.get(row[0].strip(), row[0].strip()),
            pid=int(row[1]),
            # A process's name may hold commas.
            name=", ".join(row[2:-1]).strip(),
            memory_bytes=_mebibytes(row[-1]),
        )
        for row in rows
        if _is_pid(row[1].strip())
    )


def _is_pid(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _number(text: str) -> float | None:
    try:
        number = float(text.strip())
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _mebibytes(text: str) -> int | None:
    number = _number(text)
    return int(number * _MIB) if number is not None else None

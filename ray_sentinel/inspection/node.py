"""Everything visible of this node; what cannot be examined is named and stops nothing else."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from ray_sentinel import regex as re
from ray_sentinel.inspection.gpus import gpus_here
from ray_sentinel.inspection.kernel_log import kernel_lines
from ray_sentinel.inspection.rdma import device_traffic
from ray_sentinel.inspection.session_logs import last_errors, transport_lines
from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.masking import mask_record
from ray_sentinel.model.health import NodeView, TransportLines
from ray_sentinel.model.triage import LogLine
from ray_sentinel.progress.proc.blocked import blocked_tasks

# Versions of the kernel, the distribution and the drivers that matter to a training.

_MODULES = ("nvidia", "amdgpu", "efa", "mlx5_core", "ib_core", "nvidia_peermem", "lustre", "nfs")
_NVIDIA = re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)")


def versions_here(proc: Path = Path("/proc"), root: Path = Path("/")) -> dict[str, str]:
    """The versions of ``kernel``, ``os`` and each loaded driver; "loaded" if it reports no
    version."""
    found = {
        "kernel": kernel_text(proc / "sys" / "kernel" / "osrelease"),
        "os": _distribution(root),
    }
    for name in _MODULES:
        module = root / "sys" / "module" / name
        if module.is_dir():
            found[name] = kernel_text(module / "version") or "loaded"
    match = _NVIDIA.search(kernel_text(proc / "driver" / "nvidia" / "version"))
    if match is not None:
        found["nvidia"] = match[1]
    return {name: version for name, version in found.items() if version}


def _distribution(root: Path) -> str:
    for line in kernel_text(root / "etc" / "os-release").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return ""


KERNEL_LINES = 40
"""Lines of the kernel log that are shown, the last ones."""


def view_node(
    *,
    host: str = "",
    node_id: str = "",
    address: str = "",
    session: Path | None = None,
) -> NodeView:
    """Examine this node. ``session`` is the Ray session whose logs are read; None for none.

    Takes about a second if there are RDMA devices, and at most 30 s if the driver hangs.
    """
    catalogue = load_catalogue()
    problems: list[str] = []
    gpus, processes, trouble = gpus_here()
    problems += [trouble] if trouble else []
    kernel, trouble = kernel_lines(catalogue, KERNEL_LINES)
    problems += [trouble] if trouble else []
    transport: TransportLines = TransportLines()
    errors: tuple[LogLine, ...] = ()
    if session is not None:
        transport, errors = transport_lines(session), last_errors(session, catalogue)
    view = NodeView(
        host=host or socket.gethostname(),
        node_id=node_id,
        address=address,
        time=time.time(),
        versions=versions_here(),
        blocked=blocked_tasks(),
        kernel=kernel,
        gpus=gpus,
        gpu_processes=processes,
        devices=device_traffic(),
        transport=transport,
        errors=errors,
        problems=tuple(problems),
    )
    return mask_record(view)

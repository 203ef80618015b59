"""Versions of the kernel, the distribution and the drivers that matter to a training."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel import regex as re
from ray_sentinel.kernel_files import kernel_text

_MODULES = ("nvidia", "amdgpu", "efa", "mlx5_core", "ib_core", "nvidia_peermem", "lustre", "nfs")
_NVIDIA = re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)")


def versions_here(proc: Path = Path("/proc"), root: Path = Path("/")) -> dict[str, str]:
    """``kernel``, ``os``, and each driver that is loaded; "loaded" where it tells no version."""
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

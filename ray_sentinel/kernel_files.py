"""The small files of ``/proc`` and ``/sys``, which come and go and are not all ours to read."""

from __future__ import annotations

from pathlib import Path


def kernel_text(path: Path) -> str:
    """What such a file says, without white space around it; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def boot_id(proc: Path = Path("/proc")) -> str:
    """One per boot of a machine: equal for all processes on it. Empty where it cannot be read."""
    return kernel_text(proc / "sys/kernel/random/boot_id")

"""The raylets on this machine, as /proc shows them: ours, our cluster's, and strangers."""

from __future__ import annotations

import os
from pathlib import Path

from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.progress.own_process import raylet_above
from ray_sentinel.progress.process_memory import memory_file


def raylets(proc: Path = Path("/proc")) -> dict[int, str]:
    """All raylets that can be seen from here, of any cluster: pid → address of their cluster."""
    return {
        int(entry.name): raylet_address(entry)
        for entry in proc.iterdir()
        if entry.name.isdigit() and kernel_text(entry / "comm") == "raylet"
    }


def address_here(proc: Path = Path("/proc")) -> str:
    """The address of the cluster that this process belongs to, else of one that this machine does;
    empty where it belongs to none."""
    above = raylet_above(os.getpid(), proc)
    return raylet_address(proc / str(above)) if above else next(iter(raylets(proc).values()), "")


def raylet_address(folder: Path) -> str:
    """The address of a raylet's cluster, given its folder in /proc; empty if it is no raylet."""
    if kernel_text(folder / "comm") != "raylet":
        return ""
    line = memory_file(int(folder.name), "cmdline", folder.parent) or b""
    prefix = b"--gcs-address="
    for argument in line.split(b"\0"):
        if argument.startswith(prefix):
            return argument[len(prefix) :].decode("ascii", "replace")
    return ""

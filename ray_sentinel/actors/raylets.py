"""The raylets on this machine, as /proc shows them: ours, our cluster's, and strangers."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.kernel_files import kernel_text


def raylets(proc: Path = Path("/proc")) -> dict[int, str]:
    """All raylets that can be seen from here, of any cluster: pid → address of their cluster."""
    return {
        int(entry.name): raylet_address(entry)
        for entry in proc.iterdir()
        if entry.name.isdigit() and kernel_text(entry / "comm") == "raylet"
    }


def raylet_address(folder: Path) -> str:
    """The address of a raylet's cluster, given its folder in /proc; empty if it is no raylet."""
    if kernel_text(folder / "comm") != "raylet":
        return ""
    try:
        arguments = (folder / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    prefix = b"--gcs-address="
    for argument in arguments:
        if argument.startswith(prefix):
            return argument[len(prefix) :].decode("ascii", "replace")
    return ""

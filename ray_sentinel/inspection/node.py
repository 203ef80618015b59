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
from ray_sentinel.masking import mask, mask_record
from ray_sentinel.model.health import BlockedTask, NodeView, TransportLines
from ray_sentinel.model.triage import LogLine
from ray_sentinel.text import one_line

# Tasks in uninterruptible sleep (D), with where they wait according to the kernel.
#
# Only ``stat`` is read of every task: unlike ``cmdline`` it never waits for the process's memory
# lock, which a stuck process may hold (``man 5 proc``). A task counts if it is found in D state
# twice, a moment apart: a short wait for a disk is no trouble.

BETWEEN = 0.3
"""Seconds between the two looks."""
_MOST = 64
"""Most tasks that are described: a dead mount blocks hundreds alike."""
_FRAMES = 24
"""Most frames of one kernel stack that are shown."""
_KERNEL_THREAD_FLAG = 0x00200000
"""The flag ``PF_KTHREAD`` (``include/linux/sched.h``) of the kernel's own threads, which idle in D
state."""


def blocked_tasks(proc: Path = Path("/proc"), between: float = BETWEEN) -> tuple[BlockedTask, ...]:
    """All tasks of user processes that stay in D state; at most 64."""
    first = _in_d_state(proc)
    if not first:
        return ()
    time.sleep(between)
    still = sorted(first & _in_d_state(proc))
    return tuple(_described(proc, pid, tid) for pid, tid in still[:_MOST])


def _in_d_state(proc: Path) -> set[tuple[int, int]]:
    found = set()
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            tids = [task.name for task in (entry / "task").iterdir()]
        except OSError:
            continue  # it ended while we looked
        for tid in tids:
            if _is_blocked(kernel_text(entry / "task" / tid / "stat")):
                found.add((int(entry.name), int(tid)))
    return found


def _is_blocked(stat: str) -> bool:
    fields = stat.rpartition(")")[2].split()
    if len(fields) < 7 or fields[0] != "D":
        return False
    return not (fields[6].isdigit() and int(fields[6]) & _KERNEL_THREAD_FLAG)


def _described(proc: Path, pid: int, tid: int) -> BlockedTask:
    task = proc / str(pid) / "task" / str(tid)
    wchan = kernel_text(task / "wchan").strip()
    stack = [line.partition("] ")[2] or line for line in kernel_text(task / "stack").splitlines()]
    name = kernel_text(task / "stat").partition("(")[2].rpartition(")")[0]
    # ``cmdline`` may wait for the memory lock that a blocked process holds: the name must suffice.
    return BlockedTask(
        pid=pid,
        tid=tid,
        name=mask(one_line(name, 64)),
        wchan="" if wchan == "0" else one_line(wchan, 128),
        stack=tuple(one_line(frame, 200) for frame in stack[:_FRAMES]),
    )


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

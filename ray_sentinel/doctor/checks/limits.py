"""Limits of the operating system: open files, processes, locked memory, the container's pids."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator

import msgspec

from ray_sentinel.doctor.check import Check, CheckInput, CheckResult, Here, failure, ok, warning
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.kernel_files import kernel_number
from ray_sentinel.model.thresholds import (
    LOCKED_MEMORY_LOW,
    OPEN_FILES_LOW,
    OPEN_FILES_TOO_FEW,
    PROCESSES_LEFT,
    PROCESSES_LOW,
)
from ray_sentinel.progress.proc.cgroup import ControlGroups


class LimitsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Soft limits; None is unlimited."""

    files: int | None
    processes: int | None
    locked_bytes: int | None
    rdma: bool
    """Whether there are RDMA devices, which need locked memory."""
    pids_left: int | None
    """Processes that may still be started in this container; None if nothing limits them."""


class LimitsCheck(Check[LimitsFacts]):
    """Reads the limits that a process started here has."""

    name = "limits"
    about = "ulimits are high enough"
    facts = LimitsFacts

    def look(self, plan: RunPlan, here: Here) -> LimitsFacts:
        """Our own are those of a rank: both descend from the raylet, or from the shell."""
        return LimitsFacts(
            files=_soft(resource.RLIMIT_NOFILE),
            processes=_soft(resource.RLIMIT_NPROC),
            locked_bytes=_soft(resource.RLIMIT_MEMLOCK),
            rdma=any((here.sys / "class/infiniband").glob("*")),
            pids_left=_pids_left(here),
        )

    def judge(self, case: CheckInput[LimitsFacts]) -> Iterable[CheckResult]:
        """Judge each node by itself."""
        found = [r for host, facts in case.seen.items() for r in _of_node(host, facts)]
        yield from found or [ok("open files, processes and locked memory are high enough")]


def _of_node(host: str, facts: LimitsFacts) -> Iterator[CheckResult]:
    if facts.files is not None and OPEN_FILES_LOW.crossed(facts.files):
        tell = failure if OPEN_FILES_TOO_FEW.crossed(facts.files) else warning
        yield tell(
            f"at most {facts.files} open files",
            f"ulimit -n {OPEN_FILES_LOW.limit:.0f} before Ray is started",
            host,
        )
    if facts.processes is not None and PROCESSES_LOW.crossed(facts.processes):
        yield warning(
            f"at most {facts.processes} processes and threads of this user",
            f"ulimit -u {PROCESSES_LOW.limit:.0f} before Ray is started",
            host,
        )
    locked = facts.locked_bytes
    if facts.rdma and locked is not None and LOCKED_MEMORY_LOW.crossed(locked):
        yield failure(
            f"at most {locked >> 10} KiB of locked memory, and RDMA pins its buffers",
            "ulimit -l unlimited; in a container add the capability IPC_LOCK",
            host,
        )
    if facts.pids_left is not None and PROCESSES_LEFT.crossed(facts.pids_left):
        yield warning(
            f"the container may start {facts.pids_left} more processes and threads",
            "raise pids.max (docker --pids-limit, kubelet podPidsLimit)",
            host,
        )


def _soft(kind: int) -> int | None:
    value = resource.getrlimit(kind)[0]
    return None if value == resource.RLIM_INFINITY else value


def _pids_left(here: Here) -> int | None:
    """The smallest limit of our control group and all above it, as far as they are visible."""
    left = []
    for group in ControlGroups("pids", here.proc, here.sys.parent).up("self"):
        most, now = kernel_number(group / "pids.max"), kernel_number(group / "pids.current")
        if most is not None and now is not None:
            left.append(most - now)
    return min(left, default=None)

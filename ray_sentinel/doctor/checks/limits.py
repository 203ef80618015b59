"""Limits of the operating system: open files, processes, locked memory, the container's pids."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator

import msgspec

from ray_sentinel.doctor.check import Check, CheckInput, CheckResult, Here, failure, ok, warning
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.kernel_files import kernel_number
from ray_sentinel.progress.proc.cgroup import ControlGroups

FILES = 65_536
"""Open files, sockets among them, below which a limit gives a warning."""
LEAST_FILES = 4_096
"""Open files below which a limit is a failure."""
PROCESSES = 16_384
"""Processes below which a limit gives a warning. Threads count too, and a rank has hundreds."""


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
    if facts.files is not None and facts.files < FILES:
        tell = failure if facts.files < LEAST_FILES else warning
        yield tell(
            f"at most {facts.files} open files", f"ulimit -n {FILES} before Ray is started", host
        )
    if facts.processes is not None and facts.processes < PROCESSES:
        yield warning(
            f"at most {facts.processes} processes and threads of this user",
            f"ulimit -u {PROCESSES} before Ray is started",
            host,
        )
    if facts.rdma and facts.locked_bytes is not None and facts.locked_bytes < 1 << 30:
        yield failure(
            f"at most {facts.locked_bytes >> 10} KiB of locked memory, and RDMA pins its buffers",
            "ulimit -l unlimited; in a container add the capability IPC_LOCK",
            host,
        )
    if facts.pids_left is not None and facts.pids_left < PROCESSES // 8:
        yield warning(
            f"the container may start {facts.pids_left} more processes and threads",
            "raise pids.max (docker --pids-limit, kubelet podPidsLimit)",
            host,
        )


def _soft(kind: int) -> int | None:
    value = resource.getrlimit(kind)[0]
    return None if value == resource.RLIM_INFINITY else value


def _pids_left(here: Here) -> int | None:
    """The least of our control group and all above it, as far as they are to be seen."""
    left = []
    for group in ControlGroups("pids", here.proc, here.sys.parent).up("self"):
        most, now = kernel_number(group / "pids.max"), kernel_number(group / "pids.current")
        if most is not None and now is not None:
            left.append(most - now)
    return min(left, default=None)

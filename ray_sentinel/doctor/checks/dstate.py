"""No process hangs in the kernel already (D state): a dead mount, or a wedged driver."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ray_sentinel.doctor.check import Check, CheckInput, CheckResult, Here, ok, warning
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.progress.proc.proc_stat import all_stats

LOOKS = 3
"""Number of samples, in all of which a process must be in D state."""
BETWEEN = 0.5
"""Seconds between two samples: a process that reads a disk is in D state for moments."""


class Stuck(msgspec.Struct, frozen=True):
    """One process that was in D state in every sample."""

    pid: int
    command: str
    waits_in: str


class DstateFacts(msgspec.Struct, frozen=True):
    """All of them."""

    stuck: tuple[Stuck, ...]


class DStateCheck(Check[DstateFacts]):
    """Samples several times; only processes that hang all the time count."""

    name = "d-state"
    about = "no process hangs in the kernel"
    facts = DstateFacts

    def look(self, plan: RunPlan, here: Here) -> DstateFacts:
        """Sample /proc several times."""
        stuck = _in_d_state(here.proc)
        for _ in range(LOOKS - 1):
            if not stuck:
                break
            here.clock.sleep(BETWEEN)
            again = _in_d_state(here.proc)
            stuck = {key: name for key, name in stuck.items() if key in again}
        return DstateFacts(
            tuple(Stuck(pid, name, _wchan(here.proc, pid)) for (pid, _), name in stuck.items())
        )

    def judge(self, case: CheckInput[DstateFacts]) -> Iterable[CheckResult]:
        """Warnings: it may have nothing to do with the run."""
        found = [
            warning(
                f"pid {one.pid} ({one.command}) hangs in the kernel"
                + (f", in {one.waits_in}" if one.waits_in else ""),
                f"cat /proc/{one.pid}/stack as root; a dead NFS mount or a wedged GPU driver goes "
                "only with a reboot",
                host,
            )
            for host, facts in case.seen.items()
            for one in facts.stuck
        ]
        yield from found or [ok("none")]


def _in_d_state(proc: Path) -> dict[tuple[int, int], str]:
    """(pid, start) → command."""
    stats = all_stats(proc).values()
    return {(stat.pid, stat.start): stat.command for stat in stats if stat.state == "D"}


def _wchan(proc: Path, pid: int) -> str:
    """The kernel function that it waits in; the kernel writes 0 for none."""
    return kernel_text(proc / str(pid) / "wchan").strip("0")

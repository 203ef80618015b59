"""No process hangs in the kernel already (D state): a dead mount, or a wedged driver."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ray_sentinel.doctor.check import Check, CheckInput, CheckResult, Here, ok, warning
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.model.health import BlockedTask
from ray_sentinel.progress.proc.blocked import blocked_tasks

LOOKS = 3
"""Number of samples, in all of which a task must be in D state."""
BETWEEN = 0.5
"""Seconds between two samples: a task that reads a disk is in D state for moments."""


class DstateFacts(msgspec.Struct, frozen=True):
    """All of them."""

    stuck: tuple[BlockedTask, ...]


class DStateCheck(Check[DstateFacts]):
    """Samples several times; only tasks that hang all the time count."""

    name = "d-state"
    about = "no process hangs in the kernel"
    facts = DstateFacts

    def look(self, plan: RunPlan, here: Here) -> DstateFacts:
        """Sample /proc several times."""
        return DstateFacts(
            blocked_tasks(here.proc, looks=LOOKS, between=BETWEEN, sleep=here.clock.sleep)
        )

    def judge(self, case: CheckInput[DstateFacts]) -> Iterable[CheckResult]:
        """Warnings, one for each process: it may have nothing to do with the run."""
        found = [
            warning(
                f"pid {one.pid} ({one.name}) hangs in the kernel"
                + (f", in {one.wchan}" if one.wchan else ""),
                f"cat /proc/{one.pid}/task/{one.tid}/stack as root; a dead NFS mount or a wedged "
                "GPU driver goes only with a reboot",
                host,
            )
            for host, facts in case.seen.items()
            for one in {task.pid: task for task in reversed(facts.stuck)}.values()
        ]
        yield from found or [ok("none")]

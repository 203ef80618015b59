"""Shared memory is large enough: data loaders and NCCL die of a full /dev/shm by SIGBUS."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from ray_sentinel.doctor.check import Check, CheckInput, CheckResult, Here, failure, ok, warning
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.model.thresholds import SHARED_MEMORY_FULL, SHARED_MEMORY_SMALL


class SharedMemoryFacts(msgspec.Struct, frozen=True):
    """Bytes of /dev/shm; both None if there is none."""

    size: int | None
    free: int | None


class SharedMemoryCheck(Check[SharedMemoryFacts]):
    """Looks at its file system."""

    name = "shared-memory"
    about = "/dev/shm is large enough"
    facts = SharedMemoryFacts

    def look(self, plan: RunPlan, here: Here) -> SharedMemoryFacts:
        """Its size, and what is free."""
        if not here.shm.is_dir():
            return SharedMemoryFacts(None, None)
        space = os.statvfs(here.shm)
        return SharedMemoryFacts(space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize)

    def judge(self, case: CheckInput[SharedMemoryFacts]) -> Iterable[CheckResult]:
        """Judge each node by itself."""
        remedy = (
            "docker run --shm-size=64g; in Kubernetes mount an emptyDir with medium: Memory at "
            "/dev/shm"
        )
        found = []
        for host, facts in case.seen.items():
            if facts.size is None or facts.free is None:
                found.append(failure("there is no /dev/shm", remedy, host))
            elif SHARED_MEMORY_FULL.crossed(facts.free):
                text = f"/dev/shm has {_mib(facts.free)} free of {_mib(facts.size)}"
                full = not SHARED_MEMORY_SMALL.crossed(facts.size)
                hint = "rm what old runs left in /dev/shm (`ls -la /dev/shm`)" if full else remedy
                found.append(failure(text, hint, host))
            elif SHARED_MEMORY_SMALL.crossed(facts.size):
                text = f"/dev/shm has {_mib(facts.size)}: little for data loaders with workers"
                found.append(warning(text, remedy, host))
        least = min((facts.free or 0 for facts in case.seen.values()), default=0)
        yield from found or [ok(f"at least {_mib(least)} free")]


def _mib(count: int) -> str:
    return f"{count >> 20} MiB"

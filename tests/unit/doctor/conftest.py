"""Looking and judging as the doctor does, on nodes that a test describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from ray_sentinel.doctor.check import Check, CheckResult, Cluster, Joined, ProbeResult
from ray_sentinel.doctor.examine import CheckReading, DoctorFindings
from ray_sentinel.doctor.judge import judge
from ray_sentinel.doctor.plan import RunPlan

Judge = Callable[..., list[CheckResult]]


@pytest.fixture
def judged() -> Judge:
    """``judged(check, {host: facts}, plan, cluster, visits)``."""

    def ask(
        check: Check[Any],
        seen: Mapping[str, Any],
        plan: RunPlan | None = None,
        cluster: Cluster | None = None,
        visits: tuple[ProbeResult, ...] = (),
    ) -> list[CheckResult]:
        looks = {
            host: (CheckReading(check=check.name, facts=msgspec.msgpack.encode(facts)),)
            for host, facts in seen.items()
        }
        found = DoctorFindings(looks=looks, cluster=cluster, visits=visits)
        return list(judge([check], plan or RunPlan(), found))

    return ask


@pytest.fixture
def cluster_of() -> Callable[..., Cluster]:
    """A cluster of nodes a, b, c, ..."""

    def make(
        *hosts: str, gpus: float = 0.0, free: float = 0.0, dead: tuple[str, ...] = ()
    ) -> Cluster:
        joined = tuple(
            Joined(id=host * 8, host=host, address=f"10.0.0.{n}", gpus=gpus, is_head=n == 1)
            for n, host in enumerate(hosts, 1)
        )
        return Cluster(address="10.0.0.1:6379", joined=joined, free_gpus=free, dead=dead)

    return make

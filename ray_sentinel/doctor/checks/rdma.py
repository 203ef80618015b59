"""RDMA ports are up, and every node has as many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from ray_sentinel.doctor.check import (
    Check,
    CheckInput,
    CheckResult,
    Here,
    failure,
    ok,
    skipped,
    warning,
)
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.kernel_files import kernel_text


class Port(msgspec.Struct, frozen=True):
    """One port, with the texts of the kernel."""

    name: str
    state: str
    physical: str
    rate: str


class RdmaFacts(msgspec.Struct, frozen=True):
    """The ports of a node."""

    ports: tuple[Port, ...]


class RdmaCheck(Check[RdmaFacts]):
    """Reads ``/sys/class/infiniband`` (kernel documentation, sysfs-class-infiniband)."""

    name = "rdma"
    about = "RDMA ports are up, and equal on all nodes"
    facts = RdmaFacts

    def look(self, plan: RunPlan, here: Here) -> RdmaFacts:
        """All ports of all devices."""
        found = []
        for folder in sorted((here.sys / "class/infiniband").glob("*/ports/*")):
            name = f"{folder.parents[1].name}/{folder.name}"
            state, physical, rate = (
                kernel_text(folder / n) for n in ("state", "phys_state", "rate")
            )
            found.append(Port(name, state, physical, rate))
        return RdmaFacts(tuple(found))

    def judge(self, case: CheckInput[RdmaFacts]) -> Iterable[CheckResult]:
        """Down is a failure where others of the node are up: NCCL takes them all."""
        counts = Counter(len(facts.ports) for facts in case.seen.values())
        if not any(counts):
            yield skipped("there are no RDMA devices")
            return
        found = [
            (failure if any(other.state.endswith("ACTIVE") for other in facts.ports) else warning)(
                f"{port.name} is {port.state or 'unknown'} ({port.physical})",
                "look at the cable and the switch, or leave it out with NCCL_IB_HCA",
                host,
            )
            for host, facts in case.seen.items()
            for port in facts.ports
            if not port.state.endswith("ACTIVE")
        ]
        usual = counts.most_common(1)[0][0]
        for host, facts in case.seen.items():
            if len(facts.ports) != usual:
                text = f"{len(facts.ports)} RDMA ports, where most nodes have {usual}"
                found.append(failure(text, "`ibv_devinfo` and `lspci` show what is missing", host))
        found += _rates(case)
        yield from found or [ok(f"{usual} ports per node are up")]


def _rates(case: CheckInput[RdmaFacts]) -> list[CheckResult]:
    rates = Counter(port.rate for facts in case.seen.values() for port in facts.ports if port.rate)
    usual = rates.most_common(1)[0][0] if rates else ""
    return [
        warning(
            f"{port.name} runs at {port.rate}, most ports at {usual}",
            "a cable or a port that trained down: `ibstat`, `mlxlink`",
            host,
        )
        for host, facts in case.seen.items()
        for port in facts.ports
        if port.rate and rates[port.rate] < rates[usual]
    ]

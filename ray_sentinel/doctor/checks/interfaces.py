"""The interfaces that NCCL, Gloo and tensor-parallel engines are told to use exist everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ray_sentinel.doctor.check import Check, CheckInput, CheckResult, Here, failure, ok, warning
from ray_sentinel.doctor.machine import Interface, interfaces
from ray_sentinel.doctor.netnames import chosen, parse_interfaces
from ray_sentinel.doctor.plan import RunPlan

NCCL = "NCCL_SOCKET_IFNAME"
VARIABLES = (NCCL, "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


class InterfacesFacts(msgspec.Struct, frozen=True):
    """What a node has, and what it is told to use."""

    have: tuple[Interface, ...]
    wanted: dict[str, str]


class InterfacesCheck(Check[InterfacesFacts]):
    """Judges each node for itself, then compares."""

    name = "interfaces"
    about = "NCCL_, GLOO_ and TP_SOCKET_IFNAME name interfaces that are there, and equal in kind"
    facts = InterfacesFacts

    def look(self, plan: RunPlan, here: Here) -> InterfacesFacts:
        """List them."""
        wanted = {name: here.environ[name] for name in VARIABLES if here.environ.get(name)}
        if plan.interface:
            wanted[NCCL] = plan.interface
        return InterfacesFacts(interfaces(here.sys), wanted)

    def judge(self, case: CheckInput[InterfacesFacts]) -> Iterable[CheckResult]:
        """Missing, down, set on some nodes only, different in kind."""
        found = [
            result
            for host, facts in case.seen.items()
            for name, setting in facts.wanted.items()
            for result in _missing(host, name, setting, facts)
        ]
        found += [result for name in VARIABLES for result in _uneven(case, name)]
        found += _kinds(case)
        yield from found or [ok(_chosen_everywhere(case))]


def _missing(host: str, name: str, setting: str, facts: InterfacesFacts) -> Iterator[CheckResult]:
    exclude, exact, names = parse_interfaces(setting)
    have = ", ".join(item.name for item in facts.have if item.kind != "loopback") or "none"
    # Gloo and TensorPipe take whole names only; NCCL takes prefixes.
    searched = setting if name == NCCL else "=" + ",".join(names)
    if not exclude:
        for item in names:
            one = "=" + item if exact or name != NCCL else item
            there = [other for other in facts.have if chosen(one, [other])]
            known = [other for other in facts.have if other.name == item]
            if not there and known:
                yield failure(f"{name}={setting}: {item} is down", f"ip link set {item} up", host)
            elif not there:
                yield failure(
                    f"{name}={setting}: there is no interface {item}; there are: {have}",
                    f"export {name}=<one of them>, before Ray is started there",
                    host,
                )
    taken = chosen(searched, facts.have)
    if taken and not any(item.addresses for item in taken):
        yield failure(
            f"{name}={setting}: {taken[0].name} has no address",
            f"give it one, or let {name} name another of: {have}",
            host,
        )
    if taken and taken[0].kind == "loopback" and name == NCCL:
        yield warning(
            f"{name}={setting} is the loopback interface: no other node can be reached over it",
            f"export {name}=<one of: {have}>; loopback is right on a single node only",
            host,
        )


def _uneven(case: CheckInput[InterfacesFacts], name: str) -> Iterator[CheckResult]:
    wanted = {host: facts.wanted.get(name, "") for host, facts in case.seen.items()}
    unset = [host for host, setting in wanted.items() if not setting]
    if unset and len(unset) < len(wanted):
        value = next(setting for setting in wanted.values() if setting)
        yield failure(
            f"{name} is {value} on some nodes, and not set on {', '.join(unset[:4])}",
            f"export {name}={value} on all nodes, before Ray is started there",
        )


def _kinds(case: CheckInput[InterfacesFacts]) -> list[CheckResult]:
    first = {
        host: taken[0]
        for host, facts in case.seen.items()
        if (taken := chosen(facts.wanted.get(NCCL, ""), facts.have))
    }
    by_kind = {item.kind: f"{host}: {item.name}" for host, item in first.items()}
    if len(by_kind) < 2:
        return []
    story = "; ".join(f"{kind} ({one})" for kind, one in sorted(by_kind.items()))
    return [
        failure(
            f"the nodes would talk over interfaces of different kinds: {story}",
            f"export {NCCL} so that it names the same kind on every node",
        )
    ]


def _chosen_everywhere(case: CheckInput[InterfacesFacts]) -> str:
    names = {
        taken[0].name
        for facts in case.seen.values()
        if (taken := chosen(facts.wanted.get(NCCL, ""), facts.have))
    }
    told = any(NCCL in facts.wanted for facts in case.seen.values())
    how = f"as {NCCL} says" if told else "by NCCL's own choice: no variable is set"
    return f"{', '.join(sorted(names)) or 'no interface'} is used, {how}"

"""The variables that ranks are started with: all or none, and MASTER_ADDR is rank 0's node."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping

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
from ray_sentinel.doctor.machine import interfaces
from ray_sentinel.doctor.plan import RunPlan

NEEDED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_FIRST = "use the address of rank 0's node (`hostname -I` there)"


class RankEnvironmentFacts(msgspec.Struct, frozen=True):
    """What is set on a node, and who the node is."""

    variables: dict[str, str]
    addresses: tuple[str, ...]
    master: tuple[str, ...] = ()
    """Addresses that MASTER_ADDR resolves to on this node."""
    unresolved: str = ""


class RankEnvironmentCheck(Check[RankEnvironmentFacts]):
    """Judges what is set; where nothing is set, the launcher will."""

    name = "rank-environment"
    about = "ranks' variables are complete, and MASTER_ADDR is the node of rank 0"
    facts = RankEnvironmentFacts

    def look(self, plan: RunPlan, here: Here) -> RankEnvironmentFacts:
        """The variables, this node's addresses, and a look-up of the master's name."""
        wanted = (*NEEDED, "NODE_RANK", "GROUP_RANK", "NNODES")
        variables = {name: here.environ[name] for name in wanted if here.environ.get(name)}
        own = {address for item in interfaces(here.sys) for address in item.addresses}
        master, unresolved = _resolve(variables.get("MASTER_ADDR", ""))
        return RankEnvironmentFacts(
            variables, tuple(sorted({*own, here.address} - {""})), master, unresolved
        )

    def judge(self, case: CheckInput[RankEnvironmentFacts]) -> Iterable[CheckResult]:
        """No variables at all are fine; an incomplete set is a failure."""
        if not any(set(NEEDED) & facts.variables.keys() for facts in case.seen.values()):
            yield skipped("no rank variables are set: the launcher will set them")
            return
        found = [
            result
            for host, facts in case.seen.items()
            for result in (*_values(host, facts.variables), *_master(host, facts, case))
        ]
        found += _between(case)
        yield from found or [ok("the variables are complete, and MASTER_ADDR is reachable by name")]


def _resolve(name: str) -> tuple[tuple[str, ...], str]:
    if not name:
        return (), ""
    try:
        found = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        return (), str(error)
    return tuple(sorted({str(entry[4][0]) for entry in found})), ""


def _values(host: str, have: Mapping[str, str]) -> Iterator[CheckResult]:
    """What is missing beside others on a node, or is impossible."""
    ranked = {"RANK", "LOCAL_RANK", "WORLD_SIZE"} & have.keys()
    missing = [name for name in NEEDED if name not in have]
    if ranked and missing:
        yield failure(
            f"{', '.join(sorted(ranked))} is set, but not {', '.join(missing)}",
            "start the ranks with torchrun (or Ray Train), which sets all of them",
            host,
        )
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT"):
        if name in have and not _is_number(have[name]):
            yield failure(f"{name}={have[name]} is no number", f"export {name}=<number>", host)
    port = have.get("MASTER_PORT", "")
    if _is_number(port) and not 0 < int(port) < 65536:
        yield failure(f"MASTER_PORT={port} is no port", "ports go from 1 to 65535", host)
    if _is_number(have.get("RANK", "")) and _is_number(have.get("WORLD_SIZE", "")):
        rank, size = int(have["RANK"]), int(have["WORLD_SIZE"])
        if rank >= size:
            yield failure(f"RANK={rank} is not below WORLD_SIZE={size}", "ranks count from 0", host)


def _master(
    host: str, facts: RankEnvironmentFacts, case: CheckInput[RankEnvironmentFacts]
) -> Iterator[CheckResult]:
    """What MASTER_ADDR means on a node."""
    told = f"MASTER_ADDR={facts.variables.get('MASTER_ADDR', '')}"
    if facts.unresolved:
        yield failure(f"{told} cannot be looked up: {facts.unresolved}", _FIRST, host)
    elif len(case.seen) > 1 and any(address.startswith("127.") for address in facts.master):
        yield failure(f"{told} means this node itself, on every node", _FIRST, host)
    elif facts.master and not any(set(facts.master) & set(n.addresses) for n in case.seen.values()):
        yield warning(f"{told} is none of the examined nodes", _FIRST, host)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _between(case: CheckInput[RankEnvironmentFacts]) -> Iterator[CheckResult]:
    for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"):
        values = {f.variables[name] for f in case.seen.values() if name in f.variables}
        if len(values) > 1:
            yield failure(
                f"{name} differs between nodes: {', '.join(sorted(values))}",
                f"export one {name} on all nodes",
            )
    first = _first_node(case)
    if first is None or len(case.seen) < 2:
        return
    host, facts = first
    if facts.master and not set(facts.master) & set(facts.addresses):
        yield failure(
            f"MASTER_ADDR={facts.variables['MASTER_ADDR']} is not the node of rank 0, {host} "
            f"({', '.join(facts.addresses[:3])})",
            f"export MASTER_ADDR={facts.addresses[0]}" if facts.addresses else "",
        )


def _first_node(case: CheckInput[RankEnvironmentFacts]) -> tuple[str, RankEnvironmentFacts] | None:
    for name in ("RANK", "NODE_RANK", "GROUP_RANK"):
        for host, facts in case.seen.items():
            if facts.variables.get(name) == "0":
                return host, facts
    return None

"""The checks on every node of a Ray cluster at once: a short-lived actor pinned to each."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ray_sentinel.clock import SystemClock
from ray_sentinel.doctor.catalogue import all_checks
from ray_sentinel.doctor.check import Cluster, Joined, ProbeResult
from ray_sentinel.doctor.collective import SECONDS, Reduced, reduce_here
from ray_sentinel.doctor.examine import CheckReading, DoctorFindings, examine
from ray_sentinel.doctor.machine import here, interfaces
from ray_sentinel.doctor.netnames import chosen
from ray_sentinel.doctor.peer_probe import PeerProbe, visit, whom_to_visit
from ray_sentinel.doctor.plan import RunPlan

START_SECONDS = 20.0
"""Seconds beyond the plan's deadline that an actor may take to start and to end its checks."""
VISITS_SECONDS = 60.0
"""Seconds in which every node must have probed its peers."""
_HEAD = "node:__internal_head__"


class Examined(msgspec.Struct, frozen=True, kw_only=True):
    """A node's answer; travels as MessagePack."""

    looks: tuple[CheckReading, ...]
    place: tuple[str, int] | None = None
    """Address and port at which this node can be probed; None if it cannot be."""
    problem: str = ""
    """Why this node cannot be probed; empty if it can be."""


class Examiner:
    """Runs on one node; the caller kills it when done."""

    def __init__(self, plan: bytes, host: str, address: str) -> None:
        self._plan = msgspec.msgpack.decode(plan, type=RunPlan)
        self._here = here(self._plan, host, address)
        self._meeting: PeerProbe | None = None

    def examine(self) -> bytes:
        """``Examined``."""
        problem = ""
        try:
            self._meeting = PeerProbe(self._address(), SystemClock())
        except OSError as error:
            problem = error.strerror or str(error)
        checks = [check for check in all_checks(self._plan.sources) if check.everywhere]
        looks = examine(checks, self._plan, self._here)
        meeting = self._meeting
        place = (meeting.address, meeting.port) if meeting else None
        return msgspec.msgpack.encode(Examined(looks=looks, place=place, problem=problem))

    def _address(self) -> str:
        """The address of the interface that the ranks will use, else of the one that Ray uses."""
        wish = self._plan.interface or self._here.environ.get("NCCL_SOCKET_IFNAME", "")
        named = chosen(wish, interfaces()) if wish else ()
        found = [address for item in named for address in item.addresses]
        return found[0] if found else self._here.address

    def visit(self, places: Sequence[tuple[str, str, int]]) -> bytes:
        """Visit other nodes' (host, address, port): a tuple of ``ProbeResult``."""
        clock = SystemClock()
        return msgspec.msgpack.encode(
            [visit(self._here.host, host, address, port, clock) for host, address, port in places]
        )

    def reduce(self, rank: int, size: int, address: str, port: int) -> bytes:
        """This node's part in the sum over all nodes: a ``Reduced``."""
        found = reduce_here(self._here.host, rank, size, address, port, self._environ())
        return msgspec.msgpack.encode(found)

    def _environ(self) -> dict[str, str]:
        environ = {**os.environ, **self._here.environ}
        if self._plan.interface:
            names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
            environ |= dict.fromkeys(names, self._plan.interface)
        return environ

    def free_port(self) -> int:
        """An endpoint at which the ranks can form a group."""
        with socket.create_server((self._address(), 0)) as server:
            port: int = server.getsockname()[1]
        return port


def describe(ray: Any, address: str) -> Cluster:
    """The nodes that have joined, the head first."""
    alive: list[Joined] = []
    dead: list[str] = []
    for node in ray.nodes():
        if not node["Alive"]:
            why = node.get("DeathReasonMessage") or "no reason is given"
            dead.append(f"{node['NodeManagerAddress']}: {why}")
            continue
        resources = node["Resources"]
        alive.append(
            Joined(
                id=node["NodeID"],
                host=node["NodeManagerHostname"],
                address=node["NodeManagerAddress"],
                gpus=resources.get("GPU", 0.0),
                is_head=_HEAD in resources,
            )
        )
    alive.sort(key=lambda node: (not node.is_head, node.address, node.id))
    free = ray.available_resources().get("GPU", 0.0)
    return Cluster(address=address, joined=_unique(alive), free_gpus=free, dead=tuple(dead))


def _unique(nodes: Sequence[Joined]) -> tuple[Joined, ...]:
    """Nodes of one machine are distinguished by their address, and then by their id."""
    by_host = Counter(node.host for node in nodes)
    by_place = Counter((node.host, node.address) for node in nodes)

    def label(node: Joined) -> str:
        if by_host[node.host] == 1:
            return node.host
        if by_place[node.host, node.address] == 1:
            return f"{node.host} ({node.address})"
        return f"{node.host} ({node.address}, {node.id[:8]})"

    return tuple(msgspec.structs.replace(node, host=label(node)) for node in nodes)


def examine_cluster(ray: Any, cluster: Cluster, plan: RunPlan) -> DoctorFindings:
    """The facts of every node, the peer probes, and the sum over all nodes if requested. A node
    that does not answer is reported."""
    with _examiners(ray, cluster.joined, plan) as examiners:
        refs = {host: handle.examine.remote() for host, handle in examiners.items()}
        raw, problems = _gather(ray, refs, plan.deadline + START_SECONDS)
        answers = {host: msgspec.msgpack.decode(data, type=Examined) for host, data in raw.items()}
        looks = {host: answer.looks for host, answer in answers.items()}
        for host, problem in problems.items():
            looks[host] = (CheckReading(check="nodes", problem=problem),)
        visits = _visits(ray, examiners, answers)
        reduced = _sum(ray, examiners, answers) if plan.collective else ()
    return DoctorFindings(looks=looks, cluster=cluster, visits=visits, reduced=reduced)


def _sum(
    ray: Any, examiners: Mapping[str, Any], answers: Mapping[str, Examined]
) -> tuple[Reduced, ...]:
    hosts = [host for host, answer in answers.items() if answer.place]
    if not hosts:
        return ()
    address = answers[hosts[0]].place[0]  # type: ignore[index]
    ports, problems = _gather(ray, {hosts[0]: examiners[hosts[0]].free_port.remote()}, SECONDS)
    if problems:
        return tuple(Reduced(host=host, problem=why) for host, why in problems.items())
    port = int(ports[hosts[0]])
    refs = {
        host: examiners[host].reduce.remote(rank, len(hosts), address, port)
        for rank, host in enumerate(hosts)
    }
    raw, problems = _gather(ray, refs, SECONDS + START_SECONDS)
    found = [msgspec.msgpack.decode(data, type=Reduced) for data in raw.values()]
    found += [Reduced(host=host, problem=why) for host, why in problems.items()]
    return tuple(found)


@contextlib.contextmanager
def _examiners(ray: Any, nodes: Iterable[Joined], plan: RunPlan) -> Iterator[dict[str, Any]]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    data = msgspec.msgpack.encode(plan)
    actor = ray.remote(Examiner)
    made = {}
    for node in nodes:
        options = actor.options(
            num_cpus=0,
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        made[node.host] = options.remote(data, node.host, node.address)
    try:
        yield made
    finally:
        for handle in made.values():
            ray.kill(handle)


def _gather(
    ray: Any, refs: Mapping[str, Any], seconds: float
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Answers and problems, by host."""
    from ray.exceptions import RayError

    by_ref = {ref: host for host, ref in refs.items()}
    ready, late = (
        ray.wait(list(by_ref), num_returns=len(by_ref), timeout=seconds) if by_ref else ([], [])
    )
    problems = {by_ref[ref]: f"no answer within {seconds:.0f} s" for ref in late}
    answers = {}
    for ref in ready:
        try:
            answers[by_ref[ref]] = ray.get(ref)
        except RayError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            problems[by_ref[ref]] = lines[-1].strip() if lines else type(error).__name__
    return answers, problems


def _visits(
    ray: Any, examiners: Mapping[str, Any], answers: Mapping[str, Examined]
) -> tuple[ProbeResult, ...]:
    places = {host: answer.place for host, answer in answers.items() if answer.place}
    refs = {}
    for visitor in answers:
        whom = whom_to_visit(list(dict.fromkeys((*places, visitor))), visitor)
        wanted = [(host, *place) for host in whom if (place := places.get(host))]
        if wanted:
            refs[visitor] = examiners[visitor].visit.remote(wanted)
    raw, problems = _gather(ray, refs, VISITS_SECONDS)
    found = [
        one
        for data in raw.values()
        for one in msgspec.msgpack.decode(data, type=tuple[ProbeResult, ...])
    ]
    found += [
        ProbeResult(
            visitor="", host=host, place=host, problem=f"cannot be visited: {answer.problem}"
        )
        for host, answer in answers.items()
        if answer.problem
    ]
    found += [
        ProbeResult(visitor=host, host="", place="the others", problem=problem)
        for host, problem in problems.items()
    ]
    return tuple(found)

"""torchrun's rendezvous: its endpoint answers from every node, and all mean the same run."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator

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
from ray_sentinel.doctor.endpoint import MeetingPoint, meeting_point
from ray_sentinel.doctor.machine import interfaces
from ray_sentinel.doctor.plan import RunPlan

SECONDS = 3.0
"""Seconds to wait for a connection within the cluster."""


class RendezvousFacts(msgspec.Struct, frozen=True):
    """What a node was told, and how the endpoint looks from there."""

    point: MeetingPoint
    resolves: bool = False
    own: bool = False
    """Whether the endpoint is on this node."""
    answers: bool = False
    problem: str = ""


class RendezvousCheck(Check[RendezvousFacts]):
    """Connects once from each node."""

    name = "rendezvous"
    about = "the rendezvous endpoint is the same everywhere, and answers"
    facts = RendezvousFacts

    def look(self, plan: RunPlan, here: Here) -> RendezvousFacts | None:
        """Look the name up and connect."""
        point = meeting_point(plan, here.environ)
        if not point.endpoint:
            return RendezvousFacts(point) if point.run_id else None
        if point.problem:
            return RendezvousFacts(point, problem=point.problem)
        own = {address for item in interfaces(here.sys) for address in item.addresses}
        try:
            found = socket.getaddrinfo(point.host, point.port, proto=socket.IPPROTO_TCP)
        except (OSError, UnicodeError) as error:
            return RendezvousFacts(point, problem=f"{point.host} cannot be looked up: {error}")
        mine = any(str(entry[4][0]) in {*own, here.address} for entry in found)
        try:
            socket.create_connection((point.host, point.port), timeout=SECONDS).close()
        except TimeoutError:
            problem = f"no answer within {SECONDS:.0f} s"
            return RendezvousFacts(point, resolves=True, own=mine, problem=problem)
        except OSError as error:
            problem = error.strerror or str(error)
            return RendezvousFacts(point, resolves=True, own=mine, problem=problem)
        return RendezvousFacts(point, resolves=True, own=mine, answers=True)

    def judge(self, case: CheckInput[RendezvousFacts]) -> Iterable[CheckResult]:
        """An etcd must be up now; a c10d store is started by the run itself."""
        if not any(facts.point.endpoint for facts in case.seen.values()):
            yield skipped("no rendezvous endpoint is given (--rdzv-endpoint, PET_RDZV_ENDPOINT)")
            return
        found = [*_differences(case)]
        for host, facts in case.seen.items():
            found += _of_node(host, facts, case)
        first = next(iter(case.seen.values()))
        yield from found or [ok(f"{first.point.endpoint} is the same everywhere, and in order")]


def _differences(case: CheckInput[RendezvousFacts]) -> Iterator[CheckResult]:
    for what, flag in (("endpoint", "--rdzv-endpoint"), ("run_id", "--rdzv-id")):
        values = {host: getattr(facts.point, what) for host, facts in case.seen.items()}
        if len(set(values.values())) > 1:
            story = "; ".join(f"{value or 'none'} on {host}" for host, value in values.items())
            yield failure(
                f"{flag} differs between nodes: {story[:300]}",
                f"give every node the same {flag}: with different ones they never meet",
            )


def _of_node(
    host: str, facts: RendezvousFacts, case: CheckInput[RendezvousFacts]
) -> Iterator[CheckResult]:
    point = facts.point
    if facts.answers and facts.own and not point.is_etcd:
        yield warning(
            f"something listens on {point.endpoint} already, perhaps an old run",
            f"`ss -ltnp sport = :{point.port}` shows it; end it, or take another port",
            host,
        )
    if not point.endpoint or facts.answers:
        return
    if not facts.resolves:
        yield failure(
            f"{point.endpoint}: {facts.problem}", "give HOST:PORT of the first node", host
        )
    elif point.is_etcd:
        yield failure(
            f"{point.endpoint} does not answer: {facts.problem}",
            "start etcd with --listen-client-urls http://0.0.0.0:2379, and open its port",
            host,
        )
    elif "refused" not in facts.problem.lower():
        yield failure(
            f"{point.endpoint} cannot be reached: {facts.problem}",
            "open the port between the nodes, or take another address of the first node",
            host,
        )
    elif not any(other.own for other in case.seen.values()):
        yield warning(
            f"{point.endpoint} is none of the examined nodes, and nothing listens there",
            "give the address of the first node",
            host,
        )

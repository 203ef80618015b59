"""Every node can connect to the others on the interface that the ranks will use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ray_sentinel.doctor.check import (
    CheckInput,
    CheckResult,
    JointCheck,
    ProbeResult,
    failure,
    ok,
    skipped,
    warning,
)
from ray_sentinel.model.thresholds import ROUND_TRIP_SLOW

MOST_SLOW = 5
"""Largest number of slow pairs of nodes that are reported; if all are slow, more of them add
nothing."""


class ReachabilityCheck(JointCheck):
    """Judges the peer probes."""

    name = "reachability"
    about = "nodes reach each other"

    def judge(self, case: CheckInput[Any]) -> Iterable[CheckResult]:
        """A node that nobody reaches is named once, not for every pair."""
        if case.cluster is None or len(case.cluster.joined) < 2:
            yield skipped("there is only one node")
            return
        if not case.visits:
            yield warning("no node visited another", "see the other problems first")
            return
        found = [*_failed(case.visits), *_slow(case.visits)]
        slowest = max(visit.seconds or 0.0 for visit in case.visits)
        yield from found or [ok(f"{len(case.visits)} connections, at most {slowest * 1000:.1f} ms")]


def _failed(visits: Sequence[ProbeResult]) -> Iterator[CheckResult]:
    bad = [visit for visit in visits if visit.problem]
    tried = Counter(visit.host for visit in visits)
    failed = Counter(visit.host for visit in bad)
    alone = {host for host in failed if host and failed[host] == tried[host]}
    for host in sorted(alone):
        first = next(visit for visit in bad if visit.host == host)
        yield failure(
            f"nobody reaches it at {first.place}: {first.problem}",
            "open the ports between the nodes (all of them: NCCL takes any), and see that "
            "NCCL_SOCKET_IFNAME names the network that they share",
            host,
        )
    for visit in bad:
        if visit.host not in alone:
            yield failure(
                f"{visit.visitor} does not reach {visit.host} at {visit.place}: {visit.problem}",
                "look for a firewall, or a route, between the two",
                visit.visitor,
            )


def _slow(visits: Sequence[ProbeResult]) -> Iterator[CheckResult]:
    slow = [
        (visit, visit.seconds)
        for visit in visits
        if visit.seconds is not None and ROUND_TRIP_SLOW.crossed(visit.seconds)
    ]
    for visit, seconds in slow[:MOST_SLOW]:
        yield warning(
            f"{visit.visitor} to {visit.host} takes {seconds:.3f} s there and back",
            "nodes of one run belong into one placement group or rack",
        )

"""Every node can connect to the others on the interface that the ranks will use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from ray_sentinel.doctor.check import Case, Check, Here, Result, failure, ok, skipped, warning
from ray_sentinel.doctor.plan import Plan

SLOW_SECONDS = 0.05


class Facts(msgspec.Struct, frozen=True):
    """Nothing of its own: the visits tell."""


class Reachability(Check[Facts]):
    """Judges the visits."""

    name = "reachability"
    about = "nodes reach each other"
    facts = Facts

    def look(self, plan: Plan, here: Here) -> None:
        """Nothing: nodes visit each other after all looks."""
        return

    def judge(self, case: Case[Facts]) -> Iterable[Result]:
        """A node that nobody reaches is named once, not for every pair."""
        if case.cluster is None or len(case.cluster.joined) < 2:
            yield skipped("there is only one node")
            return
        if not case.visits:
            yield warning("no node visited another", "see the other problems first")
            return
        bad = [visit for visit in case.visits if visit.problem]
        tried = Counter(visit.host for visit in case.visits)
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
                    f"{visit.visitor} does not reach {visit.host} at {visit.place}: "
                    f"{visit.problem}",
                    "look for a firewall, or a route, between the two",
                    visit.visitor,
                )
        slow = [v for v in case.visits if v.seconds is not None and v.seconds > SLOW_SECONDS]
        for visit in slow[:5]:
            yield warning(
                f"{visit.visitor} to {visit.host} takes {visit.seconds or 0:.3f} s there and back",
                "nodes of one run belong into one placement group or rack",
            )
        if not bad and not slow:
            slowest = max((v.seconds or 0.0 for v in case.visits), default=0.0)
            yield ok(f"{len(case.visits)} connections, at most {slowest * 1000:.1f} ms")

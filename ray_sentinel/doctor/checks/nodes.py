"""The expected nodes have joined the cluster, and each answers."""

from __future__ import annotations

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


class NodesFacts(msgspec.Struct, frozen=True):
    """Proof that the node answered."""

    host: str


class NodesCheck(Check[NodesFacts]):
    """Compares Ray's list with what the run needs."""

    name = "nodes"
    about = "the expected nodes have joined, and answer"
    facts = NodesFacts

    def look(self, plan: RunPlan, here: Here) -> NodesFacts:
        """The answer itself is the proof."""
        return NodesFacts(here.host)

    def judge(self, case: CheckInput[NodesFacts]) -> Iterable[CheckResult]:
        """Too few is a failure, dead ones are a warning."""
        if case.cluster is None:
            if case.plan.nodes is not None and case.plan.nodes > 1:
                yield failure(
                    f"{case.plan.nodes} nodes are expected, and there is no Ray cluster here",
                    "start it: `ray start --head`, and `ray start --address=HEAD:6379` elsewhere",
                )
            else:
                yield skipped("only this machine is examined: there is no Ray cluster")
            return
        count = len(case.cluster.joined)
        wanted = case.plan.nodes
        if wanted is not None and count < wanted:
            yield failure(
                f"{count} of {wanted} expected nodes have joined {case.cluster.address}",
                f"run `ray start --address={case.cluster.address}` on the missing ones; "
                "`ray status` lists those that are there",
            )
        elif wanted is not None and count > wanted:
            yield warning(
                f"{count} nodes have joined where {wanted} are expected",
                "leave out what does not belong to the run, or say --nodes " + str(count),
            )
        else:
            yield ok(f"{count} nodes have joined")
        if case.cluster.dead:
            yield warning(
                f"{len(case.cluster.dead)} nodes died before: " + "; ".join(case.cluster.dead[:3]),
                "look at raylet.out and `dmesg` there before they are used again",
            )

"""A sum over all nodes comes back, and is right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ray_sentinel.doctor.check import CheckInput, CheckResult, JointCheck, failure, ok, skipped


class CollectiveCheck(JointCheck):
    """Judges the sum, which is made only where it is asked for: it takes GPU memory."""

    name = "collective"
    about = "an all_reduce over the nodes works"

    def judge(self, case: CheckInput[Any]) -> Iterable[CheckResult]:
        """Each node whose part failed is named; backends must be equal."""
        if not case.plan.collective:
            yield skipped("--collective sums over all nodes, by NCCL where GPUs are, else by gloo")
            return
        if not case.reduced:
            yield skipped("there is no Ray cluster to sum over")
            return
        bad = [one for one in case.reduced if one.problem]
        for one in bad:
            yield failure(
                f"all_reduce over {len(case.reduced)} nodes failed here: {one.problem}",
                "install PyTorch there" if one.problem.startswith("no PyTorch") else
                "run it again with --env NCCL_DEBUG=INFO (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME "
                "name the network), and see reachability and interfaces",
                one.host,
            )  # fmt: skip
        if bad:
            return
        backends = {one.backend for one in case.reduced}
        if len(backends) > 1:
            without = [one.host for one in case.reduced if one.backend != "nccl"]
            yield failure(
                "NCCL on some nodes and gloo on others", "see GPUs, driver and PyTorch there",
                without[0],
            )  # fmt: skip
            return
        slowest = max(case.reduced, key=lambda one: one.seconds or 0.0)
        yield ok(
            f"{backends.pop()} over {len(case.reduced)} nodes: 16 MiB summed in "
            f"{(slowest.seconds or 0.0) * 1000:.0f} ms, joined in {slowest.join_seconds or 0:.1f} s"
        )

"""A training of thousands of ranks on nodes of eight, as its coordinator tells of it."""

from __future__ import annotations

import random

import msgspec

from ray_sentinel.model.metrics import CollectorStatus
from ray_sentinel.model.status import NodeStatus, Status
from tests.support.page_data import NOW, status

COLLECTORS = (
    "host",
    "nvml",
    "rdma",
    "kernel",
    "nccl_ras",
    "dcgm",
    "pressure",
    "disk",
    "tensorboard",
)
"""That run; others find nothing to tell of."""


def scattered(number: int) -> Status:
    """Ranks whose pids and times differ, as those of a real job do, and their nodes."""
    chance = random.Random(7)
    told = status(ranks=number)
    job, *others = told.jobs
    ranks = []
    for node in range(number // 8):
        pid = chance.randrange(1000, 60_000)
        ranks += [
            msgspec.structs.replace(
                one,
                host=f"node-{node:04}",
                pid=pid + chance.randrange(1, 4) * local,
                step_age_seconds=round(3 * chance.random(), 3),
            )
            for local, one in enumerate(job.ranks[8 * node : 8 * node + 8])
        ]
    return msgspec.structs.replace(
        told,
        jobs=(msgspec.structs.replace(job, ranks=tuple(ranks)), *others),
        nodes=tuple(_node(index, chance) for index in range(number // 8)),
    )


def a_second_later(before: Status, seed: int = 8) -> Status:
    """Every rank has ended another step, each a bit earlier or later than the others, and each node
    has reported."""
    chance = random.Random(seed)
    job, *others = before.jobs
    ranks = [
        msgspec.structs.replace(
            one, step=(one.step or 0) + 1, step_age_seconds=round(chance.random(), 3)
        )
        for one in job.ranks
    ]
    nodes = [
        msgspec.structs.replace(one, snapshot_age_seconds=round(chance.random(), 3))
        for one in before.nodes
    ]
    moved = msgspec.structs.replace(job, step=(job.step or 0) + 1, ranks=tuple(ranks))
    return msgspec.structs.replace(
        before, time=before.time + 1.0, jobs=(moved, *others), nodes=tuple(nodes)
    )


def _node(index: int, chance: random.Random) -> NodeStatus:
    address = f"10.{chance.randrange(4)}.{chance.randrange(256)}.{chance.randrange(256)}"
    return NodeStatus(
        id=chance.randbytes(28).hex(),
        host=f"node-{index:04}",
        address=address,
        metrics_url=f"http://{address}:9400/metrics",
        snapshot_age_seconds=round(chance.random(), 3),
        is_head=index == 0,
        collectors=tuple(_collector(name, index, chance) for name in (*COLLECTORS, "amdgpu")),
        memory_bytes=chance.randrange(90_000_000, 130_000_000),
    )


def _collector(name: str, index: int, chance: random.Random) -> CollectorStatus:
    if name == "amdgpu":
        return CollectorStatus(name=name, state="skipped", message="there is no AMD GPU")
    slow = name == "nvml" and index % 100 == 3
    return CollectorStatus(
        name=name,
        state="quarantined" if slow else "running",
        success=not slow,
        seconds=round(chance.random(), 6),
        last_success=NOW - round(5 * chance.random(), 3),
        timeouts=3 if slow else 0,
        message=f"no answer in 5 s, {index} times" if slow else "",
        interval=5.0,
    )

"""A job on many nodes, for the page: healthy, with a rank that is stopped, or with a lost node."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

import msgspec

from ray_sentinel.model.incident import Culprit, Incident, Verdict
from ray_sentinel.model.metrics import CollectorStatus
from ray_sentinel.model.status import JobStatus, NodeStatus, RankStatus, Status, Unwatched
from tests.support.page_data import NOW, incident

Scene = Literal["healthy", "stopped", "lost"]
LOST = 5
"""The node that is lost."""


def cluster(nodes: int, per_node: int = 8, scene: Scene = "healthy", *, step: int = 1204) -> Status:
    """``stopped``: the rank at two thirds is stopped and the others wait; ``lost``: the ranks of a
    node are silent, and it is not watched. Every 97th rank is a step behind."""
    bad = 2 * nodes * per_node // 3
    lines = tuple(
        _rank(number, number // per_node, scene, bad, step) for number in range(nodes * per_node)
    )
    hung = scene != "healthy"
    job = JobStatus(
        job="llama", attempt=1, step=step, phase="train", step_age_seconds=14.2 if hung else 0.4,
        ranks=lines, state="hung" if hung else "healthy", world_size=len(lines), step_seconds=0.83,
    )  # fmt: skip
    watched = tuple(_node(node) for node in range(nodes) if scene != "lost" or node != LOST)
    said = {
        "healthy": f"{len(lines)} ranks train",
        "stopped": f"rank {bad} is stopped by a signal, the others wait for it",
        "lost": f"{host(LOST)} is lost with {per_node} ranks",
    }
    lost = (Unwatched(id="n5", host=host(LOST), reason="its agent has gone, and the node with it"),)
    return Status(
        state="hung" if hung else "healthy", verdict=said[scene], nodes=watched, jobs=(job,),
        unwatched=lost if scene == "lost" else (), time=NOW, log_dir="/data/llama",
    )  # fmt: skip


def host(node: int) -> str:
    """A node's name."""
    return f"node-{node:04d}"


def stopped(status: Status) -> Incident:
    """The incident of the rank that is stopped in that scene."""
    (bad,) = [one for one in status.jobs[0].ranks if one.state == "stopped"]
    culprit = Culprit(rank=bad.rank, host=bad.host, pid=bad.pid, reason="state T")
    verdict = Verdict(kind="rank-stopped", summary="it is stopped", culprits=(culprit,))
    return msgspec.structs.replace(
        incident(), summary=f"rank {bad.rank} on {bad.host} is stopped", verdict=verdict
    )


def moving(nodes: int, per_node: int = 8) -> Callable[[], Status]:
    """A healthy job of which each look finds another step, other ages and other ranks behind."""
    steps = itertools.count(1204)

    def look() -> Status:
        step = next(steps)
        told = cluster(nodes, per_node, step=step)
        (job,) = told.jobs
        ranks = tuple(
            msgspec.structs.replace(
                rank,
                step=step - (1 if (rank.rank + step) % 31 == 0 else 0),
                state="silent" if (rank.rank + step) % 499 == 0 else rank.state,
                step_age_seconds=(rank.rank * 7 + step) % 30 / 10,
            )
            for rank in job.ranks
        )
        return msgspec.structs.replace(told, jobs=(msgspec.structs.replace(job, ranks=ranks),))

    return look


def _rank(number: int, node: int, scene: Scene, bad: int, step: int) -> RankStatus:
    state = "running" if scene == "healthy" else "waiting"
    if scene == "stopped" and number == bad:
        state = "stopped"
    if scene == "lost" and node == LOST:
        state = "silent"
    behind = 1 if state != "waiting" and (number % 97 == 96 or state != "running") else 0
    return RankStatus(
        rank=number, host=host(node), pid=4000 + number, step=step - behind, state=state,
        phase="train", step_age_seconds=0.4 if scene == "healthy" else 14.2,
    )  # fmt: skip


def _node(node: int) -> NodeStatus:
    slow = node % 300 == 299
    collectors = tuple(
        CollectorStatus(
            name=name,
            state="quarantined" if slow and name == "nvml" else "running",
            success=not (slow and name == "nvml"),
            message="no answer in 5 s" if slow and name == "nvml" else "",
        )
        for name in ("host", "nvml", "rdma", "kernel")
    )
    address = f"10.0.{node // 250}.{node % 250 + 1}"
    return NodeStatus(
        id=f"n{node}", host=host(node), address=address, metrics_url=f"http://{address}:9400/metrics",
        snapshot_age_seconds=0.4, is_head=node == 0, collectors=collectors,
    )  # fmt: skip

"""The cluster's health: from the coordinator, from every agent, and from Ray."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.actors.agent_calls import AgentCalls, by_name
from ray_sentinel.actors.deployment import deploy
from ray_sentinel.actors.ray_api import client_of, session_logs
from ray_sentinel.errors import UnreachableError
from ray_sentinel.evidence.node.judge import Seen, checkpoint_health, judge
from ray_sentinel.evidence.node.ray_status import read_status
from ray_sentinel.inspection.node import view_node
from ray_sentinel.logs.checkpoints import scan_checkpoints
from ray_sentinel.model.health import CheckpointHealth, Health, NodeView, RayResources
from ray_sentinel.model.status import Status

VIEW_SECONDS = 45.0
"""Seconds that an agent has to look at its node; it may wait for a driver that hangs."""
_MOST_NODES = 1000
"""Most nodes whose agents are asked for a look."""


def survey(ray: Any, checkpoints: Path | None = None) -> Health:
    """The report on the cluster that ``ray`` is connected to.

    A cluster that nobody watches is examined as far as this node can, and the report says so.
    Raises InputError if ``checkpoints`` cannot be listed.
    """
    saved = checkpoints_of(checkpoints)
    notes: list[str] = []
    status = _status(ray, notes)
    if status is not None:
        hosts = {node.id: node.host for node in status.nodes[:_MOST_NODES]}
        views = _views(ray, hosts, notes)
    else:
        views = (view_node(session=session_logs()),)
    resources, problem = ray_resources(ray)
    notes += [problem] if problem else []
    return judge(
        Seen(
            status=status,
            nodes=views,
            resources=resources,
            checkpoints=saved,
            running=submitted_jobs(ray),
            notes=tuple(notes),
            time=time.time(),
        )
    )


def checkpoints_of(folder: Path | None) -> CheckpointHealth | None:
    """The report's part about ``folder``. Raises InputError if it cannot be listed."""
    if folder is None:
        return None
    return checkpoint_health(str(folder), scan_checkpoints(folder))


def inspect(ray: Any, node_id: str) -> NodeView:
    """What the agent of one node sees now. Raises UnreachableError without an answer."""
    notes: list[str] = []
    views = _views(ray, {node_id: node_id}, notes)
    if not views:
        raise UnreachableError(notes[0])
    return views[0]


def _status(ray: Any, notes: list[str]) -> Status | None:
    try:
        raw = deploy.ask(ray, deploy.find(ray), "status")
    except UnreachableError as error:
        notes.append(f"{error}; only this node was looked at")
        return None
    return msgspec.msgpack.decode(raw, type=Status)


def _views(ray: Any, wanted: Mapping[str, str], notes: list[str]) -> tuple[NodeView, ...]:
    """What the agents of the nodes (host by id) see."""
    asked = AgentCalls(ray, by_name(ray), "inspect", dict.fromkeys(wanted, ()), wanted.__getitem__)
    views = asked.read(NodeView, VIEW_SECONDS)
    notes += asked.problems
    return tuple(sorted(views.values(), key=lambda view: view.host))


def ask_survey(address: str, checkpoints: Path | None = None) -> Health:
    """The report, for a process that may be no Ray driver. Raises UnreachableError."""
    ray: Any = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return survey(ray, checkpoints)
    folder = ["--checkpoints", str(checkpoints.absolute())] if checkpoints is not None else []
    return msgspec.msgpack.decode(deploy.through_helper(["survey", *folder], address), type=Health)


# Ray's resources, who was given them, and which requests wait.


def ray_resources(ray: Any) -> tuple[RayResources, str]:
    """The resources, and why waiting requests could not be queried (empty if they could)."""
    have, free = ray.cluster_resources(), ray.available_resources()
    demands, problem = _demands(ray)

    def given(name: str) -> float:
        return max(0.0, round(float(have.get(name, 0.0)) - float(free.get(name, 0.0)), 4))

    told = RayResources(
        gpus_total=have.get("GPU", 0.0),
        gpus_allotted=given("GPU"),
        cpus_total=have.get("CPU", 0.0),
        cpus_allotted=given("CPU"),
        demands=demands,
        nodes=sum(1 for node in ray.nodes() if node.get("Alive")),
    )
    return told, problem


def _demands(ray: Any) -> tuple[tuple[str, ...], str]:
    """What ``ray status`` would say. It is read in the same way, because its own process would need
    the token."""
    if client_of(ray) is not None:
        return (), "which requests wait is not told through Ray Client (ray://)"
    try:
        from ray._private import ray_constants
        from ray.autoscaler._private.commands import debug_status
        from ray.experimental.internal_kv import _internal_kv_get

        text = debug_status(
            _internal_kv_get(ray_constants.DEBUG_AUTOSCALING_STATUS),
            _internal_kv_get(ray_constants.DEBUG_AUTOSCALING_ERROR),
            address=ray.get_runtime_context().gcs_address,
        )
    except (ImportError, AttributeError, TypeError, ValueError, KeyError, RuntimeError) as error:
        # Private functions, which another version of Ray may not have.
        return (), f"this version of Ray does not tell which requests wait: {error}"
    told = read_status(str(text))
    return (told.demands, "") if told is not None else ((), "Ray does not tell which requests wait")


SUBMITTED_KEY = b"_ray_internal_job_info_"
SUBMITTED_NAMESPACE = b"job"
"""The namespace in which Ray's job manager keeps what it knows of a submitted job, as JSON:
``JobInfoStorageClient`` in ``ray/dashboard/modules/job/common.py``."""


def submitted_jobs(ray: Any) -> tuple[str, ...]:
    """Ids of the running jobs of ``ray job submit``; empty if Ray does not report them."""
    try:
        from ray.experimental import internal_kv

        keys = internal_kv._internal_kv_list(SUBMITTED_KEY, namespace=SUBMITTED_NAMESPACE)
        found = {
            key.removeprefix(SUBMITTED_KEY).decode(): json.loads(
                internal_kv._internal_kv_get(key, namespace=SUBMITTED_NAMESPACE) or b"{}"
            )
            for key in keys
        }
    except (ImportError, AttributeError, TypeError, ValueError, RuntimeError):
        return ()  # private functions, which another version of Ray may not have
    return tuple(sorted(job for job, info in found.items() if info.get("status") == "RUNNING"))
